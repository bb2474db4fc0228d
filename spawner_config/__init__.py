"""The configuration of JupyterHub: profiles, limits, scopes, and one module or package for each kind of deployment."""
