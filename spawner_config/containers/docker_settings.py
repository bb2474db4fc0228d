"""What the environment says of the deployment with containers; `.env.example` has it in words."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from spawner_config.containers.networks import AddressRange
from spawner_config.profiles.profiles import MEMORY as MEMORY_TEXT
from spawner_config.settings import SettingsError, needed
from spawner_config.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping

SUBNETS = "10.213.0.0/16"
MEMORY = "4G"
HTTPS_PROFILES = {"tls", "caddy"}
MTU = "1500"
SMALLEST_MTU, LARGEST_MTU = 576, 65535


@dataclass(frozen=True, kw_only=True)
class DockerSettings:
    """The settings of one hub; ``memory`` is the limit of servers whose profile names none, ``mtu`` counts bytes."""

    name: str
    notebook_image: str
    gpu_image: str
    addresses: AddressRange
    internet: bool
    https: bool
    memory: str
    mtu: int
    shares: Shares

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> DockerSettings:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        notebook_image = needed(environ, "FARANDOLE_NOTEBOOK_IMAGE", "the name of the notebook image")
        name = environ.get("FARANDOLE_NAME") or "farandole"
        return cls(
            name=name,
            notebook_image=notebook_image,
            gpu_image=environ.get("FARANDOLE_GPU_IMAGE") or notebook_image,
            addresses=_addresses(environ.get("FARANDOLE_SUBNETS") or SUBNETS),
            internet=_switch(environ, "FARANDOLE_INTERNET", default=True),
            https=not HTTPS_PROFILES.isdisjoint((environ.get("COMPOSE_PROFILES") or "").split(",")),
            memory=_memory(environ.get("FARANDOLE_MEMORY") or MEMORY),
            mtu=_mtu(environ.get("FARANDOLE_MTU") or MTU),
            shares=Shares.from_environment(environ, name),
        )


def _addresses(text: str) -> AddressRange:
    try:
        return AddressRange(whole=IPv4Network(text))
    except ValueError as exc:
        raise SettingsError(f"FARANDOLE_SUBNETS is {text!r}: {exc}. It must be a range as '10.213.0.0/16'.") from exc


def _memory(text: str) -> str:
    if not MEMORY_TEXT.fullmatch(text):
        raise SettingsError(f"FARANDOLE_MEMORY is {text!r}. It must be text as '4G' or '512M'.")
    return text


def _mtu(text: str) -> int:
    if not text.isdigit() or not SMALLEST_MTU <= int(text) <= LARGEST_MTU:
        raise SettingsError(f"FARANDOLE_MTU is {text!r}. It must be a number from {SMALLEST_MTU} to {LARGEST_MTU}.")
    return int(text)


def _switch(environ: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = environ.get(key) or ("yes" if default else "no")
    if text not in {"yes", "no"}:
        raise SettingsError(f"{key} is {text!r}. It must be yes or no.")
    return text == "yes"
