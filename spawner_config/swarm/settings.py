"""The settings and profiles of a swarm; `.env.example` explains the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from spawner_config.containers.addresses import AddressRange
from spawner_config.models import Table, naming
from spawner_config.settings import SettingsError
from spawner_config.swarm.data_labels import labels_of
from spawner_config.swarm.engine import missing_features
from spawner_config.swarm.overlays import PREFIX
from spawner_config.swarm.services import NodeNeeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawner_config.containers.settings import DockerSettings
    from spawner_config.profiles.profiles import Profile
    from spawner_config.swarm.shared_home import SharedHome

LABEL_KEY = "^[A-Za-z_][A-Za-z0-9_.-]*$"
LABEL_VALUE = "^[A-Za-z0-9_.:-]+$"
"""The characters that a swarm accepts in placement constraints."""


class SwarmTable(Table):
    """The table [profile.swarm]; ``labels`` are node labels, which `docker node update --label-add` sets."""

    labels: dict[Annotated[str, Field(pattern=LABEL_KEY)], Annotated[str, Field(pattern=LABEL_VALUE)]] = Field(
        {}, description="a table of text values, such as { disk = 'fast' }"
    )


def with_overlay_addresses(deployment: DockerSettings) -> DockerSettings:
    """Return the settings with subnets of the size that overlay networks need.

    Raises `SettingsError` if FARANDOLE_SUBNETS is too small for one such network.
    """
    try:
        return deployment.model_copy(
            update={"addresses": AddressRange(whole=deployment.addresses.whole, prefix=PREFIX)}
        )
    except ValueError as exc:
        raise SettingsError(f"FARANDOLE_SUBNETS: {exc} on a swarm.") from exc


def check_engine(info: dict[str, Any], version: str) -> None:
    """Raise `SettingsError` if the engine lacks a feature, given ``docker info`` and the ``version`` of its API."""
    if found := missing_features(info, version):
        raise SettingsError(" ".join(found))


def check_groups(deployment: DockerSettings, folder: SharedHome | None) -> None:
    """Raise `SettingsError` if there are group folders but no folder that all machines share."""
    if deployment.shares.folders and folder is None:
        raise SettingsError(
            "FARANDOLE_GROUP_FOLDERS needs FARANDOLE_SWARM_HOMES on a swarm: without a folder that all machines share, "
            "each machine would have separate group folders."
        )


def check_firewall(environ: Mapping[str, str], deployment: DockerSettings, folder: SharedHome | None) -> None:
    """Raise `SettingsError` if users' containers may be able to reach the server that exports all homes.

    Packets from a machine's containers have the machine's address, which this server trusts. The hub cannot check the
    firewalls of the machines, so the administrator must confirm that they block these packets.
    """
    word = environ.get("FARANDOLE_FIREWALL") or ""
    if word not in {"", "set"}:
        raise SettingsError(f"FARANDOLE_FIREWALL is {word!r}. It must be empty or set.")
    if deployment.internet and folder is not None and not word:
        raise SettingsError(
            "FARANDOLE_SWARM_HOMES needs FARANDOLE_INTERNET=no or FARANDOLE_FIREWALL=set: users' containers could "
            "mount the homes of all users. Set the second one once every machine has the rules of `make doctor`."
        )


def node_needs(profile: Profile) -> NodeNeeds:
    """Return the requirements for the nodes of a profile's servers; raises `ProfileError`."""
    with naming(f"[profile.swarm] of {profile.name!r}"):
        table = SwarmTable(**profile.swarm)
    return NodeNeeds(
        gpus=profile.gpus, gpu_class=profile.gpu_class, node_labels=table.labels, data=labels_of(profile.data)
    )
