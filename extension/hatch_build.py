"""Refuses to build the package before the JupyterLab extension has been built.

A package without it could be installed, but JupyterLab would show neither the panel nor the dashboards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PRODUCT = "labextension/package.json"


class LabExtensionHook(BuildHookInterface[Any]):
    """Checks that `labextension/build.py` has run; pip cannot run it, because it needs Node."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise an error that names the remedy if the extension is missing."""
        del version, build_data
        if not (Path(self.root) / "farandole" / PRODUCT).exists():
            msg = "the JupyterLab extension is not built; run `make setup`, or `python labextension/build.py` with Node"
            raise FileNotFoundError(msg)
