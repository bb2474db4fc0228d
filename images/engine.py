"""Runs a build step: checks the container engine first, and prints the errors of the step."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StepError(RuntimeError):
    """The base class of errors that stop a build step; their messages are for the user."""


class EngineError(StepError):
    """Raised when no engine answers, or when the engine cannot build images; the message says what to do."""


def run_step(step: Callable[[], None]) -> int:
    """Check that the engine can build images, then run ``step``. Print expected errors, and return the exit status."""
    try:
        check_engine()
        step()
    except (StepError, LookupError) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


def check_engine() -> None:
    """Check that the Docker engine responds and can build images; raises `EngineError`."""
    check_docker()
    if subprocess.run(["docker", "buildx", "version"], check=False, capture_output=True).returncode:
        raise EngineError("Docker has no buildx plugin, which the build needs. Install docker-buildx-plugin.")


def check_docker() -> None:
    """Check that the Docker engine responds; raises `EngineError`."""
    if not shutil.which("docker"):
        raise EngineError("There is no docker command here. Install Docker 20.10 or newer with its buildx plugin.")
    answer = subprocess.run(["docker", "version"], check=False, capture_output=True, text=True)
    if answer.returncode:
        raise EngineError(f"The Docker engine does not respond: {answer.stderr.strip()}\nStart it, or set DOCKER_HOST.")


def is_built(tag: str) -> bool:
    """Return whether the engine has an image named ``tag``."""
    return subprocess.run(["docker", "image", "inspect", tag], check=False, capture_output=True).returncode == 0
