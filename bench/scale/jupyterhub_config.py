"""The configuration of the scale bench's hub: the usual configuration with a spawner that starts no processes."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bench.scale.spawner import StandInSpawner  # noqa: E402 - needs the line above

load_subconfig(str(ROOT / "hub" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub defines it
c = get_config()  # noqa: F821

c.JupyterHub.spawner_class = StandInSpawner
# Use JupyterHub's default interval. The usual configuration for local processes polls them every two seconds.
c.Spawner.poll_interval = 30
# The hub need not stop the servers, because all stand-ins exit with the bench.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.services = [*c.JupyterHub.services, {"name": "bench", "api_token": os.environ["FARANDOLE_BENCH_TOKEN"]}]
c.JupyterHub.load_roles = [
    *c.JupyterHub.load_roles,
    {"name": "bench", "scopes": ["admin:users", "admin:servers", "list:users"], "services": ["bench"]},
]
