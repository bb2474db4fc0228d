"""Finds the notebook, kernel and cell of the running code."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The absolute path of a notebook and the ids of its kernel and of a cell; empty strings outside of a notebook."""

    notebook: str = ""
    kernel: str = ""
    cell: str = ""


def origin() -> Origin:
    """Return the origin of the running code. Call this on the thread that runs the cell.

    Jupyter Server passes the path of the notebook to a kernel that it starts. JupyterLab sends the id of the cell with
    each request to run a cell.
    """
    # Looked up instead of imported: only kernels have imported it, and other processes may lack the package.
    module = sys.modules.get("ipykernel.kernelapp")
    if module is None or not module.IPKernelApp.initialized():
        return Origin()
    app = module.IPKernelApp.instance()
    parent = app.kernel.get_parent("shell") or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    kernel = Path(app.connection_file).stem.removeprefix("kernel-")
    return Origin(notebook=os.environ.get("JPY_SESSION_NAME", ""), kernel=kernel, cell=str(cell))
