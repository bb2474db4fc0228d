"""Build the images, tag them and print their sizes.

An image gets no tag if it is too large, or if DEBIAN names an archive and the image's Debian packages differ from the
recorded packages.

    python -m images.build [cuda]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from images import debian, wheels
from images.engine import StepError, run_step
from images.names import (
    CPU,
    CUDA,
    HUB,
    IMAGES,
    NOTEBOOK,
    NOTEBOOK_CUDA,
    ONNX,
    ROOT,
    SERVING,
    SERVING_TORCH,
    Image,
    pinned,
    registry_prefix,
    revision,
    size_text,
    version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE = IMAGES / "horovod" / "build_wheel.py"


class BuildError(StepError):
    """Raised when an image cannot be built, or does not meet a requirement; the message says why."""


def build(image: Image) -> None:
    """Build ``image``, check its Debian packages and its size, and tag it; raises `BuildError`."""
    wheels.gather_all(image)
    arguments = {"VERSION": version(), "REVISION": revision(), "WEEK": week(datetime.now(UTC))}
    arguments |= own_arguments(image)
    built = run_build(["--file", str(image.dockerfile), *build_arguments(arguments), str(ROOT)])
    check_debian(image, debian.installed(built), exact=bool(archive()))
    size = check_size(image, built)
    for tag in (version(), revision()):
        subprocess.run(["docker", "tag", built, image.tag(tag, registry_prefix())], check=True)
    limit = f" of at most {size_text(image.limit)}" if image.limit else ""
    print(f"{image.tag(version(), registry_prefix())}  {size_text(size)}{limit}  {built}", flush=True)


def week(now: datetime) -> str:
    """Return the ISO week of ``now``; the first build of a week installs Debian's packages again to get their fixes."""
    return f"{now:%G-W%V}"


def own_arguments(image: Image) -> dict[str, str]:
    """Return the build arguments that only the Dockerfile of ``image`` has."""
    if image.name == NOTEBOOK.name:
        return notebook_arguments(image)
    if image.name == SERVING.name:
        return {"RUNTIME": image.variant or ONNX}
    return {}


def notebook_arguments(image: Image) -> dict[str, str]:
    """Gather Horovod's wheel or its source, and return the build arguments of the notebook image."""
    gathered = image.accelerator == CPU and wheels.gather_horovod()
    if not gathered:
        wheels.gather_horovod_source()
    if image.accelerator == CUDA:
        wheels.gather_cuda_compiler()
    return {
        "ACCELERATOR": image.accelerator,
        "HOROVOD": "gathered" if gathered else "built",
        "TORCH": pinned(image.requirements, "torch"),
        "HOROVOD_VERSION": horovod_version(),
    }


def horovod_version() -> str:
    """Return the version of Horovod that `build_wheel.py` builds."""
    (line,) = (line for line in RECIPE.read_text(encoding="utf-8").splitlines() if line.startswith("HOROVOD ="))
    return line.partition('"')[2].rstrip('"')


def build_arguments(arguments: dict[str, str]) -> list[str]:
    """Return ``arguments`` as `--build-arg` options."""
    return [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]


def run_build(arguments: list[str], *, context: bytes | None = None) -> str:
    """Run `docker buildx build` and return the image's id; raises `BuildError`."""
    with tempfile.TemporaryDirectory(prefix="farandole-build-") as folder:
        result = Path(folder) / "id"
        command = ["docker", "buildx", "build", "--load", "--iidfile", str(result), *progress(), *arguments]
        if subprocess.run(command, check=False, input=context).returncode:
            raise BuildError("The image was not built; the reason is above. Images from earlier builds are unchanged.")
        return result.read_text(encoding="utf-8").strip()


def progress() -> list[str]:
    """Return the option that prints the progress line by line, unless the output is a terminal."""
    return [] if sys.stderr.isatty() else ["--progress=plain"]


def archive() -> str:
    """Return the address of a Debian archive from the variable DEBIAN, or an empty string if DEBIAN is not set."""
    return os.environ.get("DEBIAN", "")


def check_debian(image: Image, built: Mapping[str, str], *, exact: bool) -> None:
    """Compare ``built``, the versions of an image's Debian packages by name, with the image's record.

    If they differ, raise `BuildError` if ``exact`` is true. Otherwise only print the differences, because most of them
    are security fixes.
    """
    complaint = debian.complaint(image, built)
    if complaint and exact:
        raise BuildError(f"{complaint}\nThe image was not tagged.")
    if complaint:
        print(complaint, file=sys.stderr, flush=True)


def check_size(image: Image, built: str) -> int:
    """Return the size of a built image in bytes; raises `BuildError` if the size is above the image's limit."""
    answer = subprocess.run(["docker", "image", "inspect", built], check=True, capture_output=True, text=True)
    size = int(json.loads(answer.stdout)[0]["Size"])
    if image.limit and size > image.limit:
        raise BuildError(
            f"{image.repository} has {size_text(size)}, more than its limit of {size_text(image.limit)}. "
            "`docker history` shows which step added it; images/slim.py removes unused files."
        )
    return size


def main(arguments: list[str]) -> int:
    """Build all images for the CPU or, if an argument or ACCELERATOR is cuda, the hub and the image for GPUs."""
    cuda = (arguments or [os.environ.get("ACCELERATOR") or CPU]) == [CUDA]

    def step() -> None:
        debian.gather(archive())
        for image in (HUB, NOTEBOOK_CUDA) if cuda else (HUB, NOTEBOOK, SERVING, SERVING_TORCH):
            build(image)

    return run_step(step)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
