"""Starts a worker's Jupyter server with ``python -m farandole.server.worker``, twice as fast as the usual commands.

If JupyterHub's variables are set in the environment, this is the hub's single-user server, otherwise a standalone one.
"""

from __future__ import annotations

import os

from farandole.server.single_user import skip_slow_import

MIB = 2**20
ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
}
"""Settings for glibc's malloc that keep freed memory in the process. The ranks inherit them from the server.

By default, glibc returns large blocks to the system, so a training step that allocates the blocks again causes a page
fault for every 4 KiB. According to mallopt(3), 32 MiB is the maximum of the second setting. Each thread would have an
arena of its own, to which the other settings hardly apply: the tasks of Dask, which do not run in the main thread,
would cause ten times as many page faults.
"""


def main() -> None:
    """Run the single-user server if the hub has started this process, otherwise a standalone server."""
    skip_slow_import()
    for variable, value in ALLOCATOR.items():
        os.environ.setdefault(variable, value)
    if "JUPYTERHUB_API_TOKEN" in os.environ:
        from jupyterhub.singleuser import main as run
    else:
        from jupyter_server.serverapp import main as run
    run()


if __name__ == "__main__":
    main()
