"""``python -m farandole.server.worker``: start a worker's Jupyter server in half the time of the usual commands.

With JupyterHub's variables in the environment it starts the hub's single-user server, otherwise a standalone server.
"""

from __future__ import annotations

import os
import sys

MIB = 2**20
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB), "MALLOC_TRIM_THRESHOLD_": str(256 * MIB)}
"""Settings of glibc's malloc, which the ranks inherit: freed memory stays with the process.

By default glibc returns large blocks to the system, and a training step that allocates them again has a page fault for
each 4 KiB. Source: mallopt(3), where 32 MiB is the maximum of the first value.
"""


def main() -> None:
    """Run the single-user server or the standalone server."""
    # When jsonschema is imported, it compiles a grammar of internationalized addresses, which takes two seconds and is
    # not used by any schema of a worker. jsonschema works without this module.
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
