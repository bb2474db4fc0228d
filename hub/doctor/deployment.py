"""The settings of the deployment in a folder; as in compose, the environment overrides the folder's `.env`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spawner_config.containers.addresses import MTU, SUBNETS

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPOSE_FILE, ENV_FILE = "docker-compose.yml", ".env"
SETTING = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
DEFAULTS = {
    "FARANDOLE_BIND": "127.0.0.1",
    "FARANDOLE_ENGINE_SOCKET": "/var/run/docker.sock",
    "FARANDOLE_GPU_REQUEST": "auto",
    "FARANDOLE_HTTPS": "no",
    "FARANDOLE_HUB_MEMORY": "2G",
    "FARANDOLE_INTERNET": "yes",
    "FARANDOLE_LOGIN": "native",
    "FARANDOLE_MTU": str(MTU),
    "FARANDOLE_NAME": "farandole",
    "FARANDOLE_ORIGINS": "per-user",
    "FARANDOLE_PORT": "8000",
    "FARANDOLE_REGISTRY_BIND": "127.0.0.1",
    "FARANDOLE_SIGNUP": "closed",
    "FARANDOLE_SUBNETS": SUBNETS,
    "FARANDOLE_TLS_BIND": "0.0.0.0",
    "FARANDOLE_TLS_FOLDER": "./tls",
    "FARANDOLE_TLS_PORT": "443",
    "FARANDOLE_VERSION": "0.1.0",
}
"""The default values of the settings. A test checks that they agree with docker-compose.yml."""
SERVING = ("serving", "serving-torch")
"""The images that only endpoints with a model need."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The settings of one hub; ``file`` holds the settings in `.env`, or None if the file does not exist."""

    folder: Path
    file: Mapping[str, str] | None
    environ: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path, environ: Mapping[str, str]) -> Deployment:
        """Read the folder's `.env`; raises OSError if the file exists but cannot be read."""
        path = folder / ENV_FILE
        return cls(folder=folder, file=read_env_file(path) if path.exists() else None, environ=environ)

    def get(self, key: str) -> str:
        """Return a setting; if it is missing or empty, return its default value or an empty string."""
        given = self.environ.get(key) if key in self.environ else (self.file or {}).get(key)
        return given or DEFAULTS.get(key, "")

    @property
    def name(self) -> str:
        """The hub's name, with which the names of its containers, networks and volumes begin."""
        return self.get("FARANDOLE_NAME")

    @property
    def profiles(self) -> frozenset[str]:
        """The enabled compose profiles, such as ``tls``."""
        return frozenset(self.get("COMPOSE_PROFILES").replace(",", " ").split())

    @property
    def compose_file(self) -> Path:
        """The path of docker-compose.yml."""
        return self.folder / COMPOSE_FILE

    @property
    def images(self) -> dict[str, str]:
        """The names of the images: ``hub``, ``notebook``, ``cuda`` if the hub has GPUs, and those in `SERVING`."""
        registry, version = self.get("FARANDOLE_REGISTRY"), self.get("FARANDOLE_VERSION")
        notebook, serving = (f"{registry}farandole-{name}:{version}" for name in ("notebook", "serving"))
        names = {
            "hub": self.get("FARANDOLE_HUB_IMAGE") or f"{registry}farandole-hub:{version}",
            "notebook": self.get("FARANDOLE_NOTEBOOK_IMAGE") or notebook,
        }
        if self.get("FARANDOLE_GPUS"):
            names["cuda"] = self.get("FARANDOLE_GPU_IMAGE") or f"{notebook}-cuda"
        names["serving"] = self.get("FARANDOLE_SERVING_IMAGE") or serving
        names["serving-torch"] = self.get("FARANDOLE_SERVING_TORCH_IMAGE") or f"{serving}-torch"
        return names

    def path(self, key: str) -> Path:
        """Return the path in a setting, which may be relative to the compose file's folder or begin with ``~``."""
        return self.folder / Path(self.get(key)).expanduser()


def read_env_file(path: Path) -> dict[str, str]:
    """Return the settings in a file of ``KEY=value`` lines; values may be quoted, and `` #`` starts a comment."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    found = (SETTING.fullmatch(line) for line in lines if not line.startswith("#"))
    return {match[1]: _unquoted(match[2]) for match in found if match}


def raw_values(path: Path) -> dict[str, str]:
    """Return the settings in a file; the values keep their quotes and comments."""
    found = (SETTING.fullmatch(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    return {match[1]: match[2] for match in found if match}


def _unquoted(value: str) -> str:
    quoted = re.match(r"""(["'])(.*?)\1\s*(#.*)?$""", value)
    if quoted:
        return quoted[2]
    return re.split(r"\s+#|^#", value, maxsplit=1)[0].strip()
