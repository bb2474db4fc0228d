"""Check the versions of the engine, its compose plugin and the images."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

from hub.doctor.deployment import SERVING
from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.labels import VERSION_LABEL
from spawner_config.swarm.engine import missing_features

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.doctor.deployment import Deployment
    from hub.doctor.engine import Engine

OLDEST_ENGINE = (20, 10)
OLDEST_COMPOSE = (2, 20)
"""The first version that supports ``required: false`` and ``restart`` in ``depends_on``."""
COMMAND_SECONDS = 30


def check_engine(version: dict[str, Any], where: str) -> Finding:
    """Check that the engine's version is supported."""
    text = str(version.get("Version", ""))
    if _numbers(text) < OLDEST_ENGINE:
        oldest = ".".join(map(str, OLDEST_ENGINE))
        return fault("engine", f"The engine has version {text or 'unknown'}.", f"Install {oldest} or newer.")
    return ok("engine", f"{text} at {where}")


def check_swarm(deployment: Deployment, info: dict[str, Any], version: dict[str, Any]) -> Iterator[Finding]:
    """If the hub runs on a swarm, check that its engine is a manager and new enough."""
    if deployment.get("FARANDOLE_DEPLOYMENT") != "swarm":
        return
    found = missing_features(info, str(version.get("ApiVersion") or "0"))
    yield fault("swarm", *found) if found else ok("swarm", "this machine is one of its managers")


def check_compose() -> Finding:
    """Check the version of Docker's compose plugin."""
    try:
        answer = subprocess.run(
            ["docker", "compose", "version", "--short"],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
    except FileNotFoundError:
        return fault("compose", "There is no docker command here.", "Install the packages docker-ce-cli or docker-cli.")
    except subprocess.TimeoutExpired:
        return fault("compose", f"docker compose does not respond within {COMMAND_SECONDS} s.", "Install it again.")
    return judge_compose(answer.stdout if not answer.returncode else "")


def judge_compose(answer: str) -> Finding:
    """Check the output of `docker compose version --short`, which is empty if the plugin is missing."""
    oldest = ".".join(map(str, OLDEST_COMPOSE))
    remedy = f"Install docker-compose-plugin (or docker-compose-v2) {oldest} or newer."
    text = answer.strip().removeprefix("v")
    if not text:
        return fault("compose", "docker has no compose plugin; the command docker-compose is too old.", remedy)
    if _numbers(text) < OLDEST_COMPOSE:
        return fault("compose", f"The compose plugin has version {text}.", remedy)
    return ok("compose", text)


def check_images(deployment: Deployment, engine: Engine) -> Iterator[Finding]:
    """Yield a finding about each image's version or, if the image is missing, about how to get the image."""
    version = deployment.get("FARANDOLE_VERSION")
    for kind, name in deployment.images.items():
        found = engine.get(f"/images/{name}/json")
        yield _missing(kind, name) if found is None else _judge_image(name, found, version)


def _judge_image(name: str, found: dict[str, Any], version: str) -> Finding:
    label = ((found.get("Config") or {}).get("Labels") or {}).get(VERSION_LABEL)
    if label != version:
        return fault(
            "images",
            f"{name} has version {label or 'unknown'}, and FARANDOLE_VERSION is {version}.",
            f"Build it again (make images), or pull it again (docker pull {name}).",
        )
    return ok("images", f"{name}, {found.get('Size', 0) / 2**20:.0f} MiB")


def _missing(kind: str, name: str) -> Finding:
    if "/" in name:
        return warning("images", f"{name} is not here yet; its first use pulls it.", f"docker pull {name}")
    if kind in SERVING:
        return warning(
            "images",
            f"{name} is not here, and its name has no registry to pull it from: endpoints that need it cannot start.",
            "In a checkout: make images. From a bundle: ./load . Or set FARANDOLE_REGISTRY in .env.",
        )
    accelerator = " ACCELERATOR=cuda" if kind == "cuda" else ""
    return fault(
        "images",
        f"{name} is not here, and its name has no registry to pull it from.",
        f"In a checkout: make images{accelerator}. From a bundle: ./load . Or set FARANDOLE_REGISTRY in .env.",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
