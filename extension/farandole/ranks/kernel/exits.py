"""Makes ``sys.exit()`` and ``sys.exit(0)`` end a cell successfully, as they end a script.

IPython treats each SystemExit as an error and prints advice on how to exit the kernel. With any other status or with a
message, the cell fails. ``exit()`` and ``quit()`` are ``sys.exit()``; those of ipykernel would end the rank's process.
This patches a method of IPython's shell, and was written for IPython 9.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from IPython.core.getipython import get_ipython

ADVICE = "To exit: use 'exit'"
"""The beginning of IPython's advice."""


def install() -> None:
    """Install this in the process's kernel. Do nothing outside a kernel or if it is already installed."""
    shell: Any = get_ipython()
    if shell is not None and not isinstance(shell.run_code, RunCode):
        shell.run_code = RunCode(shell.run_code)
        shell.user_ns["exit"] = shell.user_ns["quit"] = sys.exit
        warnings.filterwarnings("ignore", message=ADVICE)


class RunCode:
    """Replaces the shell's method ``run_code``, and clears the error of a successful exit."""

    def __init__(self, run_code: Any) -> None:
        self._run_code = run_code

    async def __call__(self, code: Any, result: Any = None, *, async_: bool = False) -> bool:
        """Execute one statement of a cell. Return whether the cell ends here."""
        ended: bool = await self._run_code(code, result, async_=async_)
        if result is not None and is_success(result.error_in_exec):
            result.error_in_exec = None
        return ended


def is_success(error: BaseException | None) -> bool:
    """Return whether an error is an exit with the status 0 or without a status."""
    # None has no `int` comparison, and any string is a message, including "0".
    return isinstance(error, SystemExit) and (error.code is None or (isinstance(error.code, int) and error.code == 0))


def cell_has_failed() -> bool:
    """Return whether the last cell that this kernel has completed, before the call of this function, has failed."""
    shell: Any = get_ipython()
    return shell is not None and not shell.last_execution_succeeded
