"""What the admin admits: which images, volumes and networks, and what counts as ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from hub.engine_filter.names import IMAGE
from spawner_config.settings import SettingsError
from spawner_config.shares import Shares
from spawner_config.swarm.shared_home import SharedFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HUB_LABEL = "farandole.hub"
ROLE_LABEL = "farandole.role"
SERVICE = "service"
SUBNETS = IPv4Network("10.213.0.0/16")
DOCKER, SWARM = "docker", "swarm"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of one hub on this engine; all that is its own carries the label ``farandole.hub=<name>``."""

    name: str = "farandole"
    images: tuple[str, ...] = ("farandole-notebook*",)
    shared_volumes: tuple[str, ...] = ()
    addresses: IPv4Network = SUBNETS
    gpu_kind: str = "nvidia.com/gpu"
    swarm: bool = False
    homes: SharedFolder | None = None

    def __post_init__(self) -> None:
        # The hyphen of `prefix` keeps our names apart from ids, which the engine takes in place of names.
        # The length: with a user's name behind it a network's is still one label of a domain name.
        if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,26}", self.name):
            raise SettingsError(
                f"FARANDOLE_NAME is {self.name!r}. It must be at most 27 small letters, digits and hyphens."
            )
        if not self.images:
            raise SettingsError("FARANDOLE_ALLOWED_IMAGES is empty. It must name images, as 'farandole-notebook*'.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Rules:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        name = environ.get("FARANDOLE_NAME") or cls.name
        return cls(
            name=name,
            images=_words(environ, "FARANDOLE_ALLOWED_IMAGES") or cls.images,
            shared_volumes=tuple(data.volume for data in Shares.from_environment(environ, name).data),
            addresses=_network(environ.get("FARANDOLE_SUBNETS") or str(cls.addresses)),
            gpu_kind=environ.get("FARANDOLE_GPU_KIND") or cls.gpu_kind,
            swarm=_deployment(environ) == SWARM,
            homes=SharedFolder.from_environment(environ),
        )

    @property
    def prefix(self) -> str:
        """What the names of our volumes and networks begin with."""
        return f"{self.name}-"

    @property
    def label(self) -> dict[str, str]:
        """The label that all of ours carry."""
        return {HUB_LABEL: self.name}

    def owns(self, labels: Mapping[str, Any] | None) -> bool:
        """Whether what carries these labels is this hub's."""
        return (labels or {}).get(HUB_LABEL) == self.name

    def admits_image(self, reference: str) -> bool:
        """Whether an image may be pulled and started; ``*`` stands for no slash, thus for no other repository."""
        return IMAGE.fullmatch(reference) is not None and _matches_any(reference, self.images)

    def shares_volume(self, name: str) -> bool:
        """Whether the admin lends a volume to all, read-only."""
        return name in self.shared_volumes


def is_service(labels: Mapping[str, Any] | None) -> bool:
    """Whether it is one of the hub's own parts, which the hub may not harm either."""
    return (labels or {}).get(ROLE_LABEL) == SERVICE


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns)


def _words(environ: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(environ.get(key, "").replace(",", " ").split())


def _deployment(environ: Mapping[str, str]) -> str:
    text = environ.get("FARANDOLE_DEPLOYMENT") or DOCKER
    if text not in {DOCKER, SWARM}:
        raise SettingsError(f"FARANDOLE_DEPLOYMENT is {text!r}. With the compose file it must be docker or swarm.")
    return text


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as exc:
        raise SettingsError(f"FARANDOLE_SUBNETS is {text!r}: {exc}. It must be a range as '10.213.0.0/16'.") from exc
