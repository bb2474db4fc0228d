"""Build the JupyterLab extension and the dashboard into the Python package.

A build needs Node and packages of about 500 MB. So each build is kept in a cache,
``${XDG_CACHE_HOME:-~/.cache}/farandole/labextension``, under a hash of its sources. Run it with Node's folder on PATH:

    python extension/labextension/build.py [--modules]

``--modules`` only writes the types of messages and installs the packages, as checks and tests need them.
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
PRODUCTS = {"labextension": PACKAGE / "labextension", "static": PACKAGE / "notebook" / "static"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "labextension"
SOURCES = ("package.json", "package-lock.json", "tsconfig.json", "bundle.mjs", "src", "style", "schema")
KEPT = 5


def write_types() -> None:
    """Write the types of messages between server and page, unless they are up to date."""
    types, target = typescript((PACKAGE / "server" / "panel" / "wire.py").read_text()), HERE / "src" / "wire.ts"
    if not target.exists() or target.read_text() != types:
        target.write_text(types)


def source_hash() -> str:
    """Return a hash of all sources of a build."""
    roots = [HERE / name for name in SOURCES]
    files = sorted(path for root in roots for path in (root.rglob("*") if root.is_dir() else [root]) if path.is_file())
    found = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        found.update(f"{path.relative_to(HERE).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:20]


def install_modules() -> None:
    """Install the packages of the lock file, unless they are installed."""
    lock, stamp = (HERE / "package-lock.json").read_bytes(), HERE / "node_modules" / ".stamp"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_bytes(lock)


def npm(*arguments: str) -> None:
    """Run npm; its messages name the cause of a failure."""
    subprocess.run(["npm", *arguments], cwd=HERE, check=True, stdout=sys.stderr)


def build() -> None:
    """Put a build into the package, from the cache if it is there."""
    kept = CACHE / source_hash()
    if not kept.exists():
        install_modules()
        shutil.rmtree(HERE / "lib", ignore_errors=True)
        npm("run", "build")
        keep(kept)
    for name, folder in PRODUCTS.items():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept / name, folder)


def keep(folder: Path) -> None:
    """Copy a build into the cache in one step, and remove the oldest builds."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".") as made:
        for name, product in PRODUCTS.items():
            shutil.copytree(product, Path(made) / "built" / name)
        try:
            (Path(made) / "built").rename(folder)
        except OSError:
            # Another checkout may have built the same sources in the meantime.
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
