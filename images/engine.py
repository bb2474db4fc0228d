"""What every step here asks of the container engine before it begins."""

from __future__ import annotations

import shutil
import subprocess


class EngineError(RuntimeError):
    """Raised when no engine answers here, or it lacks what builds need; says what to install."""


def check_engine() -> None:
    """Return when an engine answers and can build; raises `EngineError`."""
    if not shutil.which("docker"):
        raise EngineError("There is no docker command here. Install Docker 20.10 or newer with its buildx plugin.")
    answer = subprocess.run(["docker", "version"], check=False, capture_output=True, text=True)
    if answer.returncode:
        raise EngineError(f"No Docker engine answers: {answer.stderr.strip()}\nStart it, or set DOCKER_HOST.")
    if subprocess.run(["docker", "buildx", "version"], check=False, capture_output=True).returncode:
        raise EngineError("Docker has no buildx plugin, which builds the images. Install docker-buildx-plugin.")


def is_built(tag: str) -> bool:
    """Return whether the engine has an image of that name."""
    return subprocess.run(["docker", "image", "inspect", tag], check=False, capture_output=True).returncode == 0
