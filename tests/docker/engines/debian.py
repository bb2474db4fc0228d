"""Packages of Debian: installed on this machine, or only unpacked, maybe of a newer release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "engines"
"""What was unpacked; kept, so that the next run needs no download."""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
RELEASE, NEWER = "bookworm", "trixie"


class SetUpError(RuntimeError):
    """Raised when an engine for the tests cannot be set up here; says what is missing and what to do."""


def run(*command: str, folder: Path | None = None, **environment: str) -> str:
    """Return what a command prints; raises `SetUpError` with its last lines."""
    variables = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise SetUpError(f"{' '.join(command)} ended with status {done.returncode}:\n{end}")
    return done.stdout


def install(programs: dict[str, str]) -> None:
    """Install the packages of programs that are not there; ``programs`` maps each program to its package."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SetUpError(f"Missing system packages. Run: sudo apt-get install {' '.join(missing)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, DEBIAN_FRONTEND="noninteractive")
    print(f"installed {', '.join(missing)}", flush=True)


def mirror() -> str:
    """Return the address from which apt gets this machine's release."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    for line in targets.splitlines():
        address, release = line.split()
        if release == RELEASE:
            return address
    raise SetUpError(f"apt has no source for Debian {RELEASE} on this machine: add one to /etc/apt/sources.list.d.")


def unpack_newer(*packages: str) -> Path:
    """Return a folder with files of the newer release's packages, which are not installed."""
    return unpack(NEWER, *packages)


def unpack(release: str, *packages: str) -> Path:
    """Return a folder with files of a release's packages, which are not installed."""

    def fetch(part: Path) -> None:
        apt = own_apt(part / "apt", release)
        run(*apt, "download", *packages, folder=part / "apt")
        for package in sorted((part / "apt").glob("*.deb")):
            run("dpkg", "-x", str(package), str(part / "files"))

    return kept(f"{release}-{'-'.join(packages)}", fetch)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return what is kept under a name; where there is nothing, ``make(part)`` leaves it in ``part / "files"``."""
    folder = CACHE / name
    if folder.exists():
        return folder
    part = folder.with_suffix(f".part-{os.getpid()}")
    part.mkdir(parents=True)
    try:
        make(part)
        (part / "files").replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def own_apt(folder: Path, release: str) -> list[str]:
    """Return an apt-get for a release: its lists and state are in ``folder``, settings for proxies this machine's."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    where = f"[signed-by={KEYS}] {mirror()} {release} main"
    (folder / "sources.list").write_text(f"deb {where}\ndeb-src {where}\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
    run(*apt, "update")
    return apt
