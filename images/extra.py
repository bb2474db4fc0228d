"""Build an image for a course or a user, which adds the packages of a requirements file to the notebook image.

The host's pip resolves these packages for the image's Python, and keeps the versions that the notebook image pins. If
a package cannot be installed, the image from an earlier build is kept.

    EXTRA=requirements.txt NAME=course-2026 python -m images.extra
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from images.build import BuildError, build_arguments, run_build
from images.engine import run_step
from images.names import BUILD, IMAGES, NOTEBOOK, registry_prefix, revision, version
from images.publish import local_tag
from images.wheels import PIP, target

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def build_extra(requirements: Path, name: str) -> str:
    """Build and tag the image and return its name; raises `BuildError` or `PublishError`."""
    if not NAME.fullmatch(name):
        raise BuildError(f"NAME is {name!r}. It must consist of lower-case letters, digits and single hyphens.")
    if not requirements.is_file():
        raise BuildError(f"The file {requirements} does not exist. EXTRA must be the path of a pip requirements file.")
    parent = local_tag(NOTEBOOK, registry_prefix())
    context = BUILD / f"extra-{name}"
    shutil.rmtree(context, ignore_errors=True)
    gather(requirements, context)
    tag = f"{registry_prefix()}{NOTEBOOK.repository}-{name}:{version()}"
    arguments = {"PARENT": parent, "NAME": name, "VERSION": version(), "REVISION": revision()}
    recipe = IMAGES / "notebook" / "extra.Dockerfile"
    built = run_build(["--file", str(recipe), *build_arguments(arguments), str(context)])
    subprocess.run(["docker", "tag", built, tag], check=True)
    return tag


def gather(requirements: Path, context: Path) -> None:
    """Download the packages and their dependencies as wheels that fit the image's pins; raises `BuildError`."""
    wheels = context / "wheels"
    wheels.mkdir(parents=True)
    command = [*PIP, "download", "--only-binary=:all:", "--dest", str(wheels), *target()]
    command += ["-c", str(NOTEBOOK.requirements), "-r", str(requirements)]
    if subprocess.run(command, check=False).returncode:
        raise BuildError(
            f"The packages of {requirements} cannot be installed in the notebook image; pip's reason is "
            "above. Each package needs a wheel for Linux and Python 3.11, in a version that is compatible with "
            f"{NOTEBOOK.requirements.relative_to(IMAGES.parent)}. An image from an earlier build is unchanged."
        )
    shutil.copyfile(requirements, context / "requirements.txt")
    shutil.copyfile(NOTEBOOK.requirements, context / "constraints.txt")


def profile(name: str, tag: str) -> str:
    """Return a profile for the image, in the format of profiles.toml."""
    return f'[[profile]]\nname = "{name}"\ndescription = "With the packages of {name}"\nimage = "{tag}"'


def main() -> int:
    """Build the image and print the profile that offers it to users; return the exit status."""
    extra, name = os.environ.get("EXTRA", ""), os.environ.get("NAME", "")
    if not extra or not name:
        print("Set EXTRA and NAME: make image EXTRA=requirements.txt NAME=course-2026", file=sys.stderr)
        return 2

    def step() -> None:
        tag = build_extra(Path(extra), name)
        print(f"{tag}\nAdd this to the hub's profiles.toml; docs/how-to/profiles.md says how:\n\n{profile(name, tag)}")

    return run_step(step)


if __name__ == "__main__":
    sys.exit(main())
