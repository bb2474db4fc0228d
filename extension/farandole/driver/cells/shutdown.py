"""Distinguishes the interrupt that begins a kernel's shutdown or restart from an interrupt by the user."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

SHUTDOWN_SECONDS = 0.5
"""How many seconds after an interrupt a shutdown request may arrive. A user's interrupt is delayed by this time."""
LOOK_SECONDS = 0.02


async def shutdown_follows() -> bool:
    """Return whether the interrupt that has just arrived is the beginning of this kernel's shutdown or restart.

    Jupyter's kernel managers interrupt a kernel immediately before they send the request to shut down. ipykernel
    handles that request in a separate thread, which sets `exit_now`, so it does not wait for the running cell.
    """
    shell = _kernel_shell()
    if shell is None:
        return False
    give_up = time.monotonic() + SHUTDOWN_SECONDS
    while not shell.exit_now and time.monotonic() < give_up:  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(LOOK_SECONDS)
    return bool(shell.exit_now)


def _kernel_shell() -> Any:
    """Return the shell of this process if the process is a kernel, or None."""
    # The module is looked up and not imported, because a driver can also run in a process without IPython.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
