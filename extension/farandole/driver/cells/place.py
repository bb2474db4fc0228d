"""Finds the code of a cell in the notebook, so that the tracebacks of ranks can refer to the notebook."""

from __future__ import annotations

import sys


def place_of(code: str) -> dict[str, int] | None:
    """Return the ``number`` of the cell that runs now and contains ``code``, and how many ``lines_above`` the code has.

    Return None if the running cell does not contain the code, for example because a function generated it.
    """
    # The module is looked up and not imported, because a driver can also run in a process without IPython.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not code.strip():
        return None
    inputs = shell.history_manager.input_hist_raw
    above, found, _ = inputs[-1].rpartition(code.strip())
    return {"number": len(inputs) - 1, "lines_above": above.count("\n")} if found else None
