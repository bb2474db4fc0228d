"""What every build step requires from the container engine, and how a step reports errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StepError(RuntimeError):
    """Base class of errors that end a step with a message for the user."""


class EngineError(StepError):
    """Raised when no engine answers, or when it lacks a feature that builds need; says what to install."""


def run_step(step: Callable[[], None]) -> int:
    """Run a step on an engine that can build; return the exit status, after printing the error if there is one."""
    try:
        check_engine()
        step()
    except (StepError, LookupError) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


def check_engine() -> None:
    """Return if an engine answers and can build; raises `EngineError`."""
    if not shutil.which("docker"):
        raise EngineError("There is no docker command here. Install Docker 20.10 or newer with its buildx plugin.")
    answer = subprocess.run(["docker", "version"], check=False, capture_output=True, text=True)
    if answer.returncode:
        raise EngineError(f"No Docker engine answers: {answer.stderr.strip()}\nStart it, or set DOCKER_HOST.")
    if subprocess.run(["docker", "buildx", "version"], check=False, capture_output=True).returncode:
        raise EngineError("Docker has no buildx plugin, which builds the images. Install docker-buildx-plugin.")


def is_built(tag: str) -> bool:
    """Return whether the engine has an image with that name."""
    return subprocess.run(["docker", "image", "inspect", tag], check=False, capture_output=True).returncode == 0
