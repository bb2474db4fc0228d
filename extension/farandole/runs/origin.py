"""Finds the notebook, the kernel and the cell in which the current code is running."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The path of a notebook, its kernel's id and the id of a cell. All are empty strings outside a notebook."""

    notebook: str = ""
    kernel: str = ""
    cell: str = ""


def origin() -> Origin:
    """Return the notebook, kernel and cell of the current code. Call this on the thread that runs the cell.

    Jupyter Server passes the path of the notebook to the kernel in an environment variable. JupyterLab sends the id of
    the cell with each request to run a cell.
    """
    # The module is looked up and not imported, because it is present in every kernel, and other processes may run
    # where ipykernel is not installed.
    module = sys.modules.get("ipykernel.kernelapp")
    if module is None or not module.IPKernelApp.initialized():
        return Origin()
    app = module.IPKernelApp.instance()
    parent = app.kernel.get_parent("shell") or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    kernel = Path(app.connection_file).stem.removeprefix("kernel-")
    return Origin(notebook=os.environ.get("JPY_SESSION_NAME", ""), kernel=kernel, cell=str(cell))
