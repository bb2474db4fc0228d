"""Where the code that runs now comes from: notebook, kernel and cell."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The notebook's absolute path, and the ids of its kernel and of the cell; empty where there is none."""

    notebook: str = ""
    kernel: str = ""
    cell: str = ""


def origin() -> Origin:
    """Return where the running code comes from; to be called by the thread that runs the cell.

    Jupyter Server tells a kernel the notebook's path when it starts, and JupyterLab with each cell its id.
    """
    # Only a process that is a kernel has imported it, and others must not have to.
    module = sys.modules.get("ipykernel.kernelapp")
    if module is None or not module.IPKernelApp.initialized():
        return Origin()
    app = module.IPKernelApp.instance()
    parent = app.kernel.get_parent("shell") or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    kernel = Path(app.connection_file).stem.removeprefix("kernel-")
    return Origin(notebook=os.environ.get("JPY_SESSION_NAME", ""), kernel=kernel, cell=str(cell))
