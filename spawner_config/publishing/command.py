"""The command of the container that copies a folder, which the engine filter admits as it is here and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.datasets.versions.helper import PUBLISH
from farandole.datasets.versions.names import parse_volume

from spawner_config.shares import GROUPS_PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = "/home/user"
PLACE = GROUPS_PLACE
"""Where the volume of the version is mounted. The engine gives a new volume the owner of this folder in the image."""


def publish_command(folder: str) -> list[str]:
    """Return the command; ``folder`` is relative to the home."""
    return [*PUBLISH, f"{HOME}/{folder}", PLACE]


def is_publish_command(words: Sequence[str]) -> bool:
    """Return whether `publish_command` may have returned these words."""
    return len(words) == len(PUBLISH) + 2 and list(words) == publish_command(words[-2].removeprefix(f"{HOME}/"))


def is_volume_of_version(volume: str, hub: str) -> bool:
    """Return whether a volume may contain a version, and is none of the other volumes of the hub with this name."""
    return parse_volume(volume) is not None and not volume.startswith(f"{hub}-")
