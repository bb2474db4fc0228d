"""``python -m farandole.server.worker.main``: start a worker's Jupyter server, in half the time of the usual commands.

With JupyterHub's variables in the environment it is the hub's single-user server, else a server of its own.
"""

from __future__ import annotations

import os
import sys

MIB = 2**20
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB), "MALLOC_TRIM_THRESHOLD_": str(256 * MIB)}
"""What ranks, which inherit it, keep of the memory that they free: a training step wants its blocks again in the next.

By default glibc gives them back to the system in between, at a page fault for each 4 KiB. Source: mallopt(3), where
32 MiB is the most that the first one may be.
"""


def main() -> None:
    """Run the server that the environment asks for."""
    # jsonschema compiles a grammar of internationalised addresses when it is imported, which takes two seconds and
    # which no schema of a worker uses. It does without where the module cannot be imported.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    for variable, value in ALLOCATOR.items():
        os.environ.setdefault(variable, value)
    if "JUPYTERHUB_API_TOKEN" in os.environ:
        from jupyterhub.singleuser import main as run
    else:
        from jupyter_server.serverapp import main as run
    run()


if __name__ == "__main__":
    main()
