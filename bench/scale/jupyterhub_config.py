"""The hub of the scale bench: that of this repository, with a spawner that starts nothing."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bench.scale.spawner import StandInSpawner  # noqa: E402 - needs the line above

load_subconfig(str(ROOT / "hub" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub defines it
c = get_config()  # noqa: F821

c.JupyterHub.spawner_class = StandInSpawner
# As for containers or pods: a thousand processes would not be asked every two seconds.
c.Spawner.poll_interval = 30
# Nothing of theirs outlives the bench.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.services = [*c.JupyterHub.services, {"name": "bench", "api_token": os.environ["FARANDOLE_BENCH_TOKEN"]}]
c.JupyterHub.load_roles = [
    *c.JupyterHub.load_roles,
    {"name": "bench", "scopes": ["admin:users", "admin:servers", "list:users"], "services": ["bench"]},
]
