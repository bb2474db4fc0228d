"""What users share, as the settings name it: data sets that all read, folders that the members of a group write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

VOLUME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PATH = re.compile(r"/(data|mnt)(/[a-zA-Z0-9_][a-zA-Z0-9_.-]*)+")
"""Below folders of the image that hold nothing, so that no data set hides a part of it."""
GROUPS_PLACE = "/groups"
DATA_EXAMPLE = "imagenet:/data/imagenet"
GROUPS_EXAMPLE = "vision: ada grace, nlp"


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A volume of the engine that servers have at ``path``, read-only."""

    volume: str
    path: str


@dataclass(frozen=True, kw_only=True)
class GroupFolder:
    """A folder that a group's members write; ``members`` None means those of the hub's group of that name."""

    group: str
    members: frozenset[str] | None

    @property
    def path(self) -> str:
        """Where members' servers have it."""
        return f"{GROUPS_PLACE}/{self.group}"

    def volume(self, hub: str) -> str:
        """Return the name of its volume, one of the hub's own."""
        return f"{hub}-group-{self.group}"

    def has(self, user: str, groups: Collection[str]) -> bool:
        """Whether a user is a member; ``groups`` are the user's groups at the hub."""
        return self.group in groups if self.members is None else user in self.members


@dataclass(frozen=True, kw_only=True)
class Shares:
    """All that users of one hub share."""

    data: tuple[DataSet, ...] = ()
    folders: tuple[GroupFolder, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], hub: str) -> Shares:
        """Read FARANDOLE_SHARED_VOLUMES and FARANDOLE_GROUP_FOLDERS; ``hub`` is the hub's name.

        Raises `SettingsError`.
        """
        return cls(
            data=parse_data(environ.get("FARANDOLE_SHARED_VOLUMES") or "", hub),
            folders=parse_folders(environ.get("FARANDOLE_GROUP_FOLDERS") or ""),
        )

    def check(self, profile: str, volumes: Collection[str] | None) -> None:
        """Raise `SettingsError` where a profile is to have the data of a volume that is not shared."""
        shared = [data.volume for data in self.data]
        for volume in volumes or ():
            if volume not in shared:
                raise SettingsError(
                    f"data of profile {profile!r} has {volume!r}, which FARANDOLE_SHARED_VOLUMES does not name. It "
                    f"names: {', '.join(shared) or 'nothing'}."
                )

    def data_of(self, volumes: Collection[str] | None) -> list[DataSet]:
        """Return the data sets of a profile that has those of ``volumes``; None means all."""
        return [data for data in self.data if volumes is None or data.volume in volumes]

    def folders_of(self, user: str, groups: Collection[str]) -> list[GroupFolder]:
        """Return the folders of a user's groups."""
        return [folder for folder in self.folders if folder.has(user, groups)]


def parse_data(text: str, hub: str) -> tuple[DataSet, ...]:
    """Return the data sets that a text as ``imagenet:/data/imagenet`` names; raises `SettingsError`."""
    found = tuple(_data_set(item, hub) for item in _items(text))
    _distinct("FARANDOLE_SHARED_VOLUMES", [data.volume for data in found])
    _distinct("FARANDOLE_SHARED_VOLUMES", [data.path for data in found])
    return found


def parse_folders(text: str) -> tuple[GroupFolder, ...]:
    """Return the group folders that a text as ``vision: ada grace, nlp`` names; raises `SettingsError`."""
    found = tuple(_folder(item) for item in _items(text))
    _distinct("FARANDOLE_GROUP_FOLDERS", [folder.group for folder in found])
    return found


def _items(text: str) -> Iterator[str]:
    return (item.strip() for item in text.split(",") if item.strip())


def _data_set(item: str, hub: str) -> DataSet:
    volume, _, path = item.partition(":")
    key = "FARANDOLE_SHARED_VOLUMES"
    if not VOLUME.fullmatch(volume):
        raise SettingsError(f"{key} has {item!r}. It must be a volume and a folder, as '{DATA_EXAMPLE}'.")
    if volume.startswith(f"{hub}-"):
        raise SettingsError(f"{key} names {volume!r}, one of the hub's own volumes. Lend a volume of another name.")
    if not PATH.fullmatch(path):
        raise SettingsError(f"{key} puts {volume!r} at {path!r}. It must be a folder below /data or /mnt.")
    return DataSet(volume=volume, path=path)


def _folder(item: str) -> GroupFolder:
    group, colon, members = item.partition(":")
    group = group.strip()
    if not GROUP.fullmatch(group):
        raise SettingsError(
            f"FARANDOLE_GROUP_FOLDERS has {item!r}. It must be groups as '{GROUPS_EXAMPLE}', each named by small "
            "letters, digits and hyphens."
        )
    # The hub knows users by small letters.
    return GroupFolder(group=group, members=frozenset(members.lower().split()) if colon else None)


def _distinct(key: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{key} names {name!r} twice.")
