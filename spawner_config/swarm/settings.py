"""The settings and the profiles of a swarm; `.env.example` explains each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from spawner_config.containers.addresses import AddressRange
from spawner_config.models import Table, naming
from spawner_config.settings import SettingsError
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
"""The keys and values that a swarm accepts in a constraint."""


class SwarmTable(Table):
    """The table [profile.swarm]; ``labels`` are those that `docker node update --label-add` gives to a node."""

    labels: dict[Annotated[str, Field(pattern=LABEL_KEY)], Annotated[str, Field(pattern=LABEL_VALUE)]] = Field(
        {}, description="a table of texts, such as { disk = 'fast' }"
    )


def with_overlay_addresses(deployment: DockerSettings) -> DockerSettings:
    """Return the settings with address pieces of the size that networks over several machines have.

    Raises `SettingsError`.
    """
    try:
        return deployment.model_copy(
            update={"addresses": AddressRange(whole=deployment.addresses.whole, prefix=PREFIX)}
        )
    except ValueError as exc:
        raise SettingsError(f"FARANDOLE_SUBNETS: {exc} on a swarm.") from exc


def check_engine(info: dict[str, Any], version: str) -> None:
    """Raise `SettingsError` if the engine, by ``docker info`` and the ``version`` of its API, lacks a feature."""
    if found := missing_features(info, version):
        raise SettingsError(" ".join(found))


def check_groups(deployment: DockerSettings, folder: SharedHome | None) -> None:
    """Raise `SettingsError` if groups are to share a folder that each machine would have separately."""
    if deployment.shares.folders and folder is None:
        raise SettingsError(
            "FARANDOLE_GROUP_FOLDERS needs FARANDOLE_SWARM_HOMES on a swarm: without a folder that all machines share, "
            "each machine would have separate group folders."
        )


def check_firewall(environ: Mapping[str, str], deployment: DockerSettings, folder: SharedHome | None) -> None:
    """Raise `SettingsError` if users' containers may reach the server with all homes.

    A machine sends the packets of its containers with its own address, which the server with the homes trusts. The hub
    cannot see the firewalls of the swarm's machines, so the administrator has to confirm them.
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
    """Return the requirements of a profile's servers on their node; raises `ProfileError`."""
    with naming(f"[profile.swarm] of {profile.name!r}"):
        table = SwarmTable(**profile.swarm)
    return NodeNeeds(gpus=profile.gpus, gpu_class=profile.gpu_class, node_labels=table.labels)
