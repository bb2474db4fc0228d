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
"""The folder of files that builds take from outside the repository; git ignores it."""
PYTHON = "3.11.2"
"""The Python of debian:bookworm-slim; some packages require a later one of the same series."""
PYTHON_TAG = "cp311"
CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: its short name, its size limit in bytes, and its accelerator."""

    name: str
    limit: int | None
    accelerator: str = CPU

    @property
    def repository(self) -> str:
        """The image's name without registry and tag."""
        return f"farandole-{self.name}"

    @property
    def requirements(self) -> Path:
        """The file that pins all its Python packages."""
        suffix = "" if self.accelerator == CPU else f"-{self.accelerator}"
        return IMAGES / self.name / f"requirements{suffix}.txt"

    @property
    def debian(self) -> Path:
        """The record of its Debian packages, which do not depend on the accelerator."""
        return IMAGES / self.name / "debian.txt"

    @property
    def dockerfile(self) -> Path:
        """The path of its Dockerfile."""
        return IMAGES / self.name / "Dockerfile"

    @property
    def wheels(self) -> Path:
        """The folder in which its wheels are gathered."""
        return BUILD / f"{self.name}-{self.accelerator}"

    def tag(self, version: str, registry: str = "") -> str:
        """Return the full name; the name of the accelerator follows the version unless it is the CPU."""
        suffix = "" if self.accelerator == CPU else f"-{self.accelerator}"
        return f"{registry}{self.repository}:{version}{suffix}"


HUB = Image(name="hub", limit=430_000_000)
NOTEBOOK = Image(name="notebook", limit=1_300_000_000)
NOTEBOOK_CUDA = Image(name="notebook", limit=None, accelerator=CUDA)


def version() -> str:
    """Return the product's version."""
    project = tomllib.loads((ROOT / "extension" / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def revision() -> str:
    """Return the checkout's commit, with `-dirty` if tracked files changed; FARANDOLE_REVISION overrides it."""
    given = os.environ.get("FARANDOLE_REVISION")
    if given:
        return given
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    answer = subprocess.run(git, check=False, capture_output=True, text=True)
    return answer.stdout.strip() or "unknown"


def registry_prefix(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Return REGISTRY as the beginning of an image's name: empty, or with one slash at the end."""
    registry = environ.get("REGISTRY", "").rstrip("/")
    return f"{registry}/" if registry else ""


def pinned(requirements: Path, package: str) -> str:
    """Return the version of ``package`` that ``requirements`` pins; raises LookupError."""
    for line in requirements.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("==")
        if name == package:
            return value
    raise LookupError(f"{requirements} pins no {package}. Run `make lock`.")
