"""Install Debian packages, or unpack them without installing them, also from a newer release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "engines"
"""The folder for unpacked packages, which are kept so that the next run does not download them again."""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
RELEASE, NEWER = "bookworm", "trixie"


class SetUpError(RuntimeError):
    """Raised if an engine for the tests cannot be set up. The message says what failed or what is missing."""


def run(*command: str, folder: Path | None = None, **environment: str) -> str:
    """Return the output of a command. Raises `SetUpError` with the last lines of the output if the command fails."""
    variables = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise SetUpError(f"{' '.join(command)} ended with status {done.returncode}:\n{end}")
    return done.stdout


def install(programs: dict[str, str]) -> None:
    """Install the packages of programs that are missing. ``programs`` maps each program to its package."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SetUpError(f"Missing system packages. Run: sudo apt-get install {' '.join(missing)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, DEBIAN_FRONTEND="noninteractive")
    print(f"installed {', '.join(missing)}", flush=True)


def mirror() -> str:
    """Return the URL from which apt downloads this machine's release."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    for line in targets.splitlines():
        address, release = line.split()
        if release == RELEASE:
            return address
    raise SetUpError(f"apt has no source for Debian {RELEASE} on this machine. Add one to /etc/apt/sources.list.d.")


def unpack_newer(*packages: str) -> Path:
    """Unpack packages of the newer release without installing them, and return the folder with their files."""
    return unpack(NEWER, *packages)


def unpack(release: str, *packages: str) -> Path:
    """Unpack packages of a release without installing them, and return the folder with their files."""

    def fetch(part: Path) -> None:
        apt = own_apt(part / "apt", release)
        run(*apt, "download", *packages, folder=part / "apt")
        for package in sorted((part / "apt").glob("*.deb")):
            run("dpkg", "-x", str(package), str(part / "files"))

    return kept(f"{release}-{'-'.join(packages)}", fetch)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder ``name``.

    If it does not exist yet, ``make(part)`` has to create ``part / "files"``, which is then moved to the cache.
    """
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
    """Return an apt-get command for a release.

    It keeps all state in ``folder`` and uses this machine's proxy settings.
    """
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
