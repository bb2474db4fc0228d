"""The configuration of the network bench's hub: the usual configuration, with workers on hosts with slow links."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bench.network.links import HERE  # noqa: E402 - needs the line above
from bench.network.spawner import NamespaceSpawner  # noqa: E402

load_subconfig(str(ROOT / "hub" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub defines it
c = get_config()  # noqa: F821

c.JupyterHub.spawner_class = NamespaceSpawner
# The workers must reach the hub.
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("127.0.0.1", str(HERE))
