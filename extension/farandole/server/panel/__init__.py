"""The server side of the JupyterLab panel, which keeps the state that the pages show and performs their actions."""
