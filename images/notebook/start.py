"""The first process of a notebook server or worker: copies the example notebooks for new users, then runs the server.

Standard library only; the spawner of local processes copies the notebooks with it too.
"""

import os
import shutil
import sys
from pathlib import Path

NOTEBOOKS = Path("/opt/farandole/notebooks")


def copy_notebooks(source: Path, home: Path) -> None:
    """Copy the notebooks that ``home`` lacks; existing files are unchanged."""
    for notebook in sorted(source.glob("*.ipynb")):
        if not (home / notebook.name).exists():
            shutil.copyfile(notebook, home / notebook.name)


def main(arguments: list[str]) -> None:
    """Run the program of ``arguments`` in place of this one; a worker does not copy the notebooks."""
    if "FARANDOLE_WORKER" not in os.environ:
        try:
            copy_notebooks(NOTEBOOKS, Path.home())
        except OSError as exc:
            # A full or unwritable volume must not prevent the start, because users repair it from their server.
            print(f"The example notebooks could not be copied: {exc}", file=sys.stderr, flush=True)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
