"""The first process of a notebook server or worker: new users find the example notebooks, then the server runs.

It needs nothing but the standard library, so the spawner of local processes copies the notebooks with it too.
"""

import os
import shutil
import sys
from pathlib import Path

NOTEBOOKS = Path("/opt/farandole/notebooks")


def copy_notebooks(source: Path, home: Path) -> None:
    """Copy the notebooks that ``home`` lacks; what a user has there stays as it is."""
    for notebook in sorted(source.glob("*.ipynb")):
        if not (home / notebook.name).exists():
            shutil.copyfile(notebook, home / notebook.name)


def main(arguments: list[str]) -> None:
    """Become the program that ``arguments`` name; a worker's home is nobody's place to look for notebooks."""
    if "FARANDOLE_WORKER" not in os.environ:
        try:
            copy_notebooks(NOTEBOOKS, Path.home())
        except OSError as exc:
            # A full or foreign volume must not keep users from their server: there they can mend it.
            print(f"The example notebooks could not be copied: {exc}", file=sys.stderr, flush=True)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
