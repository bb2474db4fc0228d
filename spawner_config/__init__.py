"""The configuration of JupyterHub's servers: profiles, limits, scopes, and one module for each deployment."""
