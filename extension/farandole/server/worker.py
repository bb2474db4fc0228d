"""``python -m farandole.server.worker``: start a worker's Jupyter server, in half the time of the usual commands.

With JupyterHub's variables in the environment it is the hub's single-user server, else a server of its own.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the server that the environment asks for."""
    # jsonschema compiles a grammar of internationalised addresses when it is imported, which takes two seconds and
    # which no schema of a worker uses. It does without where the module cannot be imported.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    if "JUPYTERHUB_API_TOKEN" in os.environ:
        from jupyterhub.singleuser import main as run
    else:
        from jupyter_server.serverapp import main as run
    run()


if __name__ == "__main__":
    main()
