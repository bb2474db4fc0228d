"""The logins for registries that ``docker login`` has stored."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from farandole.exceptions import RegistryError
from farandole.reading import SMALL_JSON_BYTES, read_json, reason

CONFIG_FILE = "config.json"


def config_folder() -> Path:
    """Return the folder of Docker's configuration: ``$DOCKER_CONFIG``, or ``.docker`` in the home folder."""
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def login_for(host: str) -> tuple[str, str] | None:
    """Return the user and the password for a registry, or None if there is no login for it.

    Raises RegistryError if the configuration cannot be read.

    Source: https://docs.docker.com/reference/cli/docker/login/
    """
    folder = config_folder()
    # The file may be a link, as in a secret that Kubernetes mounts.
    path = Path(os.path.realpath(folder / CONFIG_FILE))
    try:
        config = read_json(path.parent, path.name, SMALL_JSON_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise RegistryError(f"the logins in {folder} cannot be read: {reason(exc)}.") from exc
    auths = config.get("auths")
    for name in (host, f"https://{host}", f"http://{host}"):
        entry = auths.get(name) if isinstance(auths, dict) else None
        if isinstance(entry, dict) and isinstance(entry.get("auth"), str) and entry["auth"]:
            return _decoded(entry["auth"], name, folder)
    return None


def _decoded(auth: str, name: str, folder: Path) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise RegistryError(f"the login for {name} in {folder / CONFIG_FILE} is damaged; log in again.") from exc
    if not colon:
        raise RegistryError(f"the login for {name} in {folder / CONFIG_FILE} is damaged; log in again.")
    return user, password
