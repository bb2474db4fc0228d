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
ONNX, TORCH = "onnx", "torch"


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image with its short name, its maximum size in bytes (None for no maximum) and its variant.

    The variants of an image have the same Dockerfile, but different Python packages. The name of the main variant is
    empty.
    """

    name: str
    limit: int | None
    variant: str = ""

    @property
    def accelerator(self) -> str:
        """The hardware that the image's torch is built for."""
        return CUDA if self.variant == CUDA else CPU

    @property
    def repository(self) -> str:
        """The image's name without a registry and a tag."""
        return f"farandole-{self.name}"

    @property
    def requirements(self) -> Path:
        """The file that pins the image's Python packages."""
        return IMAGES / self.name / f"requirements{self._suffix}.txt"

    @property
    def debian(self) -> Path:
        """The record of the image's Debian packages, which do not depend on the variant."""
        return IMAGES / self.name / "debian.txt"

    @property
    def dockerfile(self) -> Path:
        """The path of the image's Dockerfile."""
        return IMAGES / self.name / "Dockerfile"

    @property
    def wheels(self) -> Path:
        """The folder into which the image's wheels are downloaded before the build."""
        return BUILD / f"{self.name}-{self.variant or CPU}"

    def tag(self, version: str, registry: str = "") -> str:
        """Return the full name, whose tag is the version and, if it has a name, the variant."""
        return f"{registry}{self.repository}:{version}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return f"-{self.variant}" if self.variant else ""


HUB = Image(name="hub", limit=430_000_000)
NOTEBOOK = Image(name="notebook", limit=1_450_000_000)
NOTEBOOK_CUDA = Image(name="notebook", limit=None, variant=CUDA)
SERVING = Image(name="serving", limit=450_000_000)
SERVING_TORCH = Image(name="serving", limit=1_100_000_000, variant=TORCH)


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
