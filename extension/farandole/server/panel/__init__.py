"""The server side of the JupyterLab panel: the state that its pages show, and the actions that they offer."""
