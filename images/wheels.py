"""Download or build the inputs that an image needs from outside the repository: wheels, the proxy and Horovod.

The host's pip and npm do this, so that their configuration (mirrors, certificates) is used but is not stored in a layer
of the image. The image builds themselves download only Debian packages.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from images.engine import StepError
from images.names import BUILD, CPU, CUDA, HUB, IMAGES, PYTHON, PYTHON_TAG, ROOT, Image

DEBIAN_GLIBC = (2, 36)
HOROVOD_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "wheels"
PIP = [sys.executable, "-m", "pip", "--quiet"]


class GatherError(StepError):
    """Raised when pip or npm fails, after the program has printed its own messages."""


def call(command: list[str], *, environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run pip or npm; raises `GatherError` if the command fails."""
    if subprocess.run(command, check=False, env=environment, cwd=folder, stdout=sys.stderr).returncode:
        raise GatherError(
            f"{Path(command[0]).name} failed; its reason is above. Is the package index reachable from here, and is "
            "the disk full? Behind a mirror or a proxy, set pip's and npm's own configuration on this machine."
        )


def target() -> list[str]:
    """Return the pip options that select wheels for the images' Python and C library instead of this machine's."""
    machine = platform.machine()
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(DEBIAN_GLIBC[1], 4, -1)]
    names += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}", f"linux_{machine}"]
    return ["--python-version", PYTHON, "--implementation", "cp", *(f"--platform={name}" for name in names)]


def gather(image: Image) -> None:
    """Download the wheels that ``image`` pins, unless an earlier run has downloaded the same versions."""
    pins = image.requirements.read_bytes()
    digest, stamp = hashlib.sha256(pins).hexdigest(), image.wheels / "stamp"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    print(f"Downloading the packages of {image.repository} ({image.variant or CPU}) ...", file=sys.stderr)
    shutil.rmtree(image.wheels, ignore_errors=True)
    image.wheels.mkdir(parents=True)
    download(["-r", str(image.requirements)], image.wheels, environment=_pip_environment(image))
    stamp.write_text(digest, encoding="utf-8")


def download(what: list[str], folder: Path, *, environment: dict[str, str]) -> None:
    """Download packages without their dependencies; source packages must be pure Python, and are built into wheels."""
    command = [*PIP, "download", "--no-deps", "--dest", str(folder), *target(), *what]
    call(command, environment=environment)
    for source in [*folder.glob("*.tar.gz"), *folder.glob("*.zip")]:
        call([*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)])
        source.unlink()


def _pip_environment(image: Image) -> dict[str, str]:
    # For CUDA, ignore this machine's pip configuration, because it may prefer a CPU build of torch.
    plain = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    return {**os.environ, **(plain if image.accelerator == CUDA else {})}


def gather_farandole() -> None:
    """Build Farandole's wheel with fixed timestamps, so that unchanged code keeps the build cache valid."""
    folder = _emptied(BUILD / "farandole")
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT / "extension")]
    call(command, environment={**os.environ, "SOURCE_DATE_EPOCH": "1577836800"})


def gather_proxy() -> None:
    """Install the hub's proxy without its development dependencies."""
    folder = BUILD / "proxy"
    lock = (ROOT / "package-lock.json").read_bytes()
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    _emptied(folder)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(ROOT / name, folder / name)
    npm = ["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    call(npm, folder=folder)
    stamp.write_bytes(lock)


def gather_horovod() -> bool:
    """Copy the Horovod wheels that this machine has built; return whether there is one that may fit the image.

    The image build then selects the wheel by the name of its cache folder, which depends on torch and Python.
    """
    folder = _emptied(BUILD / "horovod")
    usable = tuple(int(part) for part in platform.libc_ver()[1].split(".")) <= DEBIAN_GLIBC
    wheels = sorted(HOROVOD_CACHE.glob(f"*/*-{PYTHON_TAG}-*.whl")) if usable else []
    for wheel in wheels:
        (folder / wheel.parent.name).mkdir(exist_ok=True)
        shutil.copy(wheel, folder / wheel.parent.name)
    return bool(wheels)


def gather_horovod_source() -> None:
    """Download Horovod's source and the packages that its build needs."""
    folder = BUILD / "horovod-source"
    if (folder / "stamp").exists():
        return
    _emptied(folder)
    recipe = str(IMAGES / "horovod" / "build_wheel.py")
    tools = subprocess.run([sys.executable, recipe, "--requirements"], check=True, capture_output=True, text=True)
    download(tools.stdout.split(), folder, environment=dict(os.environ))
    # Download the source last, because `download` turns all source archives in the folder into wheels.
    call([sys.executable, recipe, "--source", str(folder)])
    (folder / "stamp").touch()


def gather_cuda_compiler() -> None:
    """Download NVIDIA's compiler from PyPI for Horovod's build; the finished image does not contain the compiler."""
    folder = BUILD / "cuda-compiler"
    if (folder / "stamp").exists():
        return
    _emptied(folder)
    download(["-r", str(IMAGES / "horovod" / "cuda-requirements.txt")], folder, environment=dict(os.environ))
    (folder / "stamp").touch()


def gather_all(image: Image) -> None:
    """Gather the inputs of the build of ``image``, except Horovod."""
    gather(image)
    gather_farandole()
    if image is HUB:
        gather_proxy()


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
