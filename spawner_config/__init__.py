"""How JupyterHub's servers are made here: profiles, limits, scopes and one module for each kind of deployment."""
