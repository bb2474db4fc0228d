"""Builds the JupyterLab extension and copies it into the Python package.

A build needs Node and about 500 MB of npm packages. Builds are therefore cached by a hash of their sources, in
``${XDG_CACHE_HOME:-~/.cache}/farandole/labextension``. Run this script with Node's folder on PATH:

    python extension/labextension/build.py [--modules]

With ``--modules``, the script only writes the TypeScript types of the messages and installs the npm packages, which is
all that checks and tests need.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from wire_types import typescript

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "farandole"
PRODUCT = PACKAGE / "labextension"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "labextension"
SOURCES = ("package.json", "package-lock.json", "tsconfig.json", "src", "style", "schema")
KEPT = 5

WIRE = ("wire_hub.py", "wire.py", "wire_routes.py")


def write_types() -> None:
    """Write the TypeScript types of the messages between server and page, unless they are up to date."""
    sources = [(PACKAGE / "server" / "panel" / name).read_text() for name in WIRE]
    types, target = typescript(*sources), HERE / "src" / "wire.ts"
    if not target.exists() or target.read_text() != types:
        target.write_text(types)


def source_hash() -> str:
    """Return a hash of all files from which the extension is built."""
    roots = [HERE / name for name in SOURCES]
    files = sorted(path for root in roots for path in (root.rglob("*") if root.is_dir() else [root]) if path.is_file())
    found = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        found.update(f"{path.relative_to(HERE).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:20]


def install_modules() -> None:
    """Install the npm packages in the lock file, unless they are already installed."""
    lock, stamp = (HERE / "package-lock.json").read_bytes(), HERE / "node_modules" / ".stamp"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_bytes(lock)


def npm(*arguments: str) -> None:
    """Run npm, which prints the cause of a failure itself. Its output goes to stderr."""
    subprocess.run(["npm", *arguments], cwd=HERE, check=True, stdout=sys.stderr)


def build() -> None:
    """Copy a build of the current sources into the Python package. Build it first if it is not in the cache."""
    kept = CACHE / source_hash()
    if not kept.exists():
        install_modules()
        shutil.rmtree(HERE / "lib", ignore_errors=True)
        npm("run", "build")
        keep(kept)
    shutil.rmtree(PRODUCT, ignore_errors=True)
    shutil.copytree(kept, PRODUCT)


def keep(folder: Path) -> None:
    """Add a build to the cache atomically, and remove the oldest builds from the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".") as made:
        shutil.copytree(PRODUCT, Path(made) / "built")
        try:
            (Path(made) / "built").rename(folder)
        except OSError:
            # This is not an error if another process has cached a build of the same sources in the meantime.
            if not folder.exists():
                raise
    older = sorted((path for path in CACHE.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in older[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    try:
        write_types()
        install_modules() if sys.argv[1:] == ["--modules"] else build()
    except subprocess.CalledProcessError as error:
        sys.exit(f"npm failed ({error.returncode}); its reason is above. Is the package registry reachable?")
