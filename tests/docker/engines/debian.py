"""Packages of Debian: installed on this machine, or of a newer release and only unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

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
    folder = CACHE / f"{NEWER}-{'-'.join(packages)}"
    if folder.exists():
        return folder
    part = folder.with_suffix(f".part-{os.getpid()}")
    try:
        for package in _download(packages, part / "apt"):
            run("dpkg", "-x", str(package), str(part / "files"))
        (part / "files").replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _download(packages: tuple[str, ...], folder: Path) -> list[Path]:
    """Let an apt with lists and state of its own, but this machine's settings for proxies, fetch packages."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror()} {NEWER} main\n")
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
    run(*apt, "download", *packages, folder=folder)
    return sorted(folder.glob("*.deb"))
