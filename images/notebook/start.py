"""The entry point of notebook servers and workers: copies the example notebooks, then runs the server.

This module uses only the standard library. The spawner for local processes also calls `copy_notebooks`.
"""

import os
import shutil
import sys
from pathlib import Path

NOTEBOOKS = Path("/opt/farandole/notebooks")


def copy_notebooks(source: Path, home: Path) -> None:
    """Copy the notebooks from ``source`` that do not exist in ``home``; existing files are kept."""
    for notebook in sorted(source.glob("*.ipynb")):
        if not (home / notebook.name).exists():
            shutil.copyfile(notebook, home / notebook.name)


def main(arguments: list[str]) -> None:
    """Copy the example notebooks into a notebook server, and replace this process with the command in ``arguments``."""
    if not {"FARANDOLE_WORKER", "FARANDOLE_ENDPOINT"} & os.environ.keys():
        try:
            copy_notebooks(NOTEBOOKS, Path.home())
        except OSError as exc:
            # A full or unwritable volume must not prevent the start, because users need their server to repair it.
            print(f"The example notebooks could not be copied: {exc}", file=sys.stderr, flush=True)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
