"""The Python of Debian's next release, with which tests run a driver: unpacked, with its own C library."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from functools import partial
from typing import TYPE_CHECKING

from images.lock import SOURCE_ONLY
from spawner_config.settings import ROOT
from tests.docker.engines.debian import kept, unpack_newer

if TYPE_CHECKING:
    from pathlib import Path

NAME = "python3.13"
PACKAGES = (
    *(f"{NAME}-minimal", f"lib{NAME}-minimal", f"lib{NAME}-stdlib", "libc6", "libgcc-s1", "libstdc++6", "libexpat1"),
    *("libssl3t64", "zlib1g", "libzstd1", "libbz2-1.0", "liblzma5", "libffi8", "libsqlite3-0", "libuuid1"),
)
WRAPPER = """\
#!/bin/sh
exec {loader} --library-path {libraries} --argv0 "$0" {program} "$@"
"""
"""Starts Python by its own dynamic loader, because the C library of this machine is older. Python takes the wrapper for
its executable, so that `sys.executable` starts other processes, and finds ``pyvenv.cfg`` beside it."""


def environment() -> Path:
    """Return a virtual environment with the dependencies of `farandole`, in the versions that this checkout pins.

    It is cached. Raises `SetUpError` or CalledProcessError if something cannot be downloaded.
    """
    system, wanted = unpack_newer(*PACKAGES), dependencies()
    digest = hashlib.sha256("\n".join([WRAPPER, str(system), *wanted]).encode()).hexdigest()
    return kept(f"{NAME}-{digest[:12]}", partial(_make, system, wanted))


def install_checkout(folder: Path) -> None:
    """Install `farandole` from this checkout into a folder, which a newer Python can use with ``PYTHONPATH``."""
    _pip("install", "--no-deps", "--no-build-isolation", "--target", folder, ROOT / "extension")


def dependencies() -> list[str]:
    """Return the pinned requirements of `farandole`."""
    package = tomllib.loads((ROOT / "extension/pyproject.toml").read_text())["project"]["dependencies"]
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["run"]
    pinned = {_project(pin): pin for pin in pins}
    return [pinned[_project(requirement)] for requirement in package]


def _project(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0]


def _make(system: Path, wanted: list[str], part: Path) -> None:
    """Create the environment in ``part / "files"``. It may be moved, but not ``system``."""
    folder = part / "files"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {system}/usr/bin\n")
    [loader] = system.glob("usr/lib/*/ld-linux-*.so.*")
    python = folder / "bin" / NAME
    python.write_text(WRAPPER.format(loader=loader, libraries=loader.parent, program=system / "usr/bin" / NAME))
    python.chmod(0o755)
    wheels = part / "wheels"
    _pip("wheel", "--no-deps", "--wheel-dir", wheels, *set(wanted).intersection(SOURCE_ONLY))
    _pip("--python", python, "install", "--only-binary=:all:", "--find-links", wheels, *wanted)


def _pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)
