"""What the environment and the profiles say of a swarm; `.env.example` has it in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spawner_config.containers.networks import AddressRange
from spawner_config.profiles.profiles import ProfileError
from spawner_config.settings import SettingsError
from spawner_config.swarm.engine import lack
from spawner_config.swarm.overlays import PREFIX
from spawner_config.swarm.services import Wanted

if TYPE_CHECKING:
    from spawner_config.containers.docker_settings import DockerSettings
    from spawner_config.profiles.profiles import Profile
    from spawner_config.swarm.shared_home import SharedFolder

LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
VALUE = re.compile(r"[A-Za-z0-9_.:-]+")
"""What a swarm takes in a constraint."""


def with_overlay_addresses(ours: DockerSettings) -> DockerSettings:
    """Return the settings with pieces of the size that networks over several machines have.

    Raises `SettingsError`.
    """
    try:
        return replace(ours, addresses=AddressRange(whole=ours.addresses.whole, prefix=PREFIX))
    except ValueError as exc:
        raise SettingsError(f"FARANDOLE_SUBNETS: {exc} on a swarm.") from exc


def check_engine(info: dict[str, Any], version: str) -> None:
    """Raise `SettingsError` where an engine, by what ``docker info`` and its API's ``version`` say, cannot do it."""
    if found := lack(info, version):
        raise SettingsError(" ".join(found))


def check_groups(ours: DockerSettings, folder: SharedFolder | None) -> None:
    """Raise `SettingsError` where groups are to share what no two machines would."""
    if ours.shares.folders and folder is None:
        raise SettingsError(
            "FARANDOLE_GROUP_FOLDERS needs FARANDOLE_SWARM_HOMES on a swarm: without a folder that all machines share, "
            "each of them would have folders of its own."
        )


def wanted_node(profile: Profile) -> Wanted:
    """Return what a node must have for a profile's servers; raises `ProfileError`.

    ``labels`` of its table [profile.swarm] are those that `docker node update --label-add` gives.
    """
    unknown = sorted(profile.swarm.keys() - {"labels"})
    if unknown:
        raise ProfileError(f"[profile.swarm] of {profile.name!r} has an unknown key {unknown[0]!r}. It knows: labels.")
    labels = profile.swarm.get("labels", {})
    if not isinstance(labels, dict) or not all(_is_label(key, value) for key, value in labels.items()):
        raise ProfileError(
            f"labels of [profile.swarm] of {profile.name!r} must be a table of texts, as {{ disk = 'fast' }}."
        )
    return Wanted(gpus=profile.gpus, gpu_class=profile.gpu_class, node_labels=labels)


def _is_label(key: str, value: object) -> bool:
    return bool(LABEL.fullmatch(key)) and isinstance(value, str) and bool(VALUE.fullmatch(value))
