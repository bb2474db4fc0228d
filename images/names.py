"""The images of the project: their names, tags, files and size limits."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "images"
BUILD = ROOT / "build" / "images"
"""The folder for the files that builds need from outside the repository; git ignores this folder."""
PYTHON = "3.11.2"
"""The Python version of debian:bookworm-slim. Some packages require a later patch version than 3.11.0."""
PYTHON_TAG = "cp311"
CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image with its short name, its maximum size in bytes (None for no maximum) and its accelerator."""

    name: str
    limit: int | None
    accelerator: str = CPU

    @property
    def repository(self) -> str:
        """The image's name without a registry and a tag."""
        return f"farandole-{self.name}"

    @property
    def requirements(self) -> Path:
        """The file that pins the image's Python packages."""
        suffix = "" if self.accelerator == CPU else f"-{self.accelerator}"
        return IMAGES / self.name / f"requirements{suffix}.txt"

    @property
    def debian(self) -> Path:
        """The record of the image's Debian packages, which do not depend on the accelerator."""
        return IMAGES / self.name / "debian.txt"

    @property
    def dockerfile(self) -> Path:
        """The path of the image's Dockerfile."""
        return IMAGES / self.name / "Dockerfile"

    @property
    def wheels(self) -> Path:
        """The folder into which the image's wheels are downloaded before the build."""
        return BUILD / f"{self.name}-{self.accelerator}"

    def tag(self, version: str, registry: str = "") -> str:
        """Return the full name, whose tag is the version and, except for the CPU, the accelerator."""
        suffix = "" if self.accelerator == CPU else f"-{self.accelerator}"
        return f"{registry}{self.repository}:{version}{suffix}"


HUB = Image(name="hub", limit=430_000_000)
NOTEBOOK = Image(name="notebook", limit=1_340_000_000)
NOTEBOOK_CUDA = Image(name="notebook", limit=None, accelerator=CUDA)


def size_text(count: int) -> str:
    """Format a number of bytes in MiB also if it is above 1 GiB, because the images are close to their limits."""
    return f"{count / 2**20:.0f} MiB"


def version() -> str:
    """Return Farandole's version."""
    project = tomllib.loads((ROOT / "extension" / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def revision() -> str:
    """Return FARANDOLE_REVISION or the checkout's commit, which ends in `-dirty` if tracked files have changed."""
    given = os.environ.get("FARANDOLE_REVISION")
    if given:
        return given
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    answer = subprocess.run(git, check=False, capture_output=True, text=True)
    return answer.stdout.strip() or "unknown"


def registry_prefix(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Return REGISTRY as the prefix of an image's name, which is empty or ends in one slash."""
    registry = environ.get("REGISTRY", "").rstrip("/")
    return f"{registry}/" if registry else ""


def pinned(requirements: Path, package: str) -> str:
    """Return the version of ``package`` that the file ``requirements`` pins; raises LookupError if it pins none."""
    for line in requirements.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("==")
        if name == package:
            return value
    raise LookupError(f"{requirements} pins no {package}. Run `make lock`.")
