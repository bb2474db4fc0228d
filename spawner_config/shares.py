"""Volumes that users share: read-only data sets for all users, and folders in which members of a group can write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.datasets.versions.mounted import variables
from farandole.datasets.versions.names import parse_version
from farandole.exceptions import UsageError

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

DATA, FOLDERS = "FARANDOLE_SHARED_VOLUMES", "FARANDOLE_GROUP_FOLDERS"
VOLUME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PATH = re.compile(r"/(data|mnt)(/[a-zA-Z0-9_][a-zA-Z0-9_.-]*)+")
"""Matches paths below image folders that are empty, so that a mounted data set does not hide files of the image."""
GROUPS_PLACE = "/groups"


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A volume that servers mount read-only at ``path``.

    ``version`` is, for example, ``imagenet@2``, or empty for a volume whose files may change.
    """

    volume: str
    path: str
    version: str = ""

    @property
    def name(self) -> str:
        """The name of the data set, as in FARANDOLE_SHARED_VOLUMES and in profiles."""
        return self.version or self.volume


@dataclass(frozen=True, kw_only=True)
class GroupFolder:
    """A folder in which the members of a group can write.

    If ``members`` is None, they are the members of the JupyterHub group with the same name.
    """

    group: str
    members: frozenset[str] | None

    @property
    def path(self) -> str:
        """The path of the folder in members' servers."""
        return f"{GROUPS_PLACE}/{self.group}"

    def volume(self, hub: str) -> str:
        """Return the name of the folder's volume, which starts with the name of the hub."""
        return f"{hub}-group-{self.group}"

    def has(self, user: str, groups: Collection[str]) -> bool:
        """Return whether a user is a member; ``groups`` are the names of the user's JupyterHub groups."""
        return self.group in groups if self.members is None else user in self.members


@dataclass(frozen=True, kw_only=True)
class Shares:
    """All data sets and group folders of a hub."""

    data: tuple[DataSet, ...] = ()
    folders: tuple[GroupFolder, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], hub: str) -> Shares:
        """Read FARANDOLE_SHARED_VOLUMES and FARANDOLE_GROUP_FOLDERS for the hub with the name ``hub``.

        Raises `SettingsError`.
        """
        return cls(data=parse_data(environ.get(DATA) or "", hub), folders=parse_folders(environ.get(FOLDERS) or ""))

    def check(self, profile: str, volumes: Collection[str] | None) -> None:
        """Raise `SettingsError` if a profile lists a volume that is not in FARANDOLE_SHARED_VOLUMES."""
        shared = [data.name for data in self.data]
        for volume in volumes or ():
            if volume not in shared:
                raise SettingsError(
                    f"data of profile {profile!r} has {volume!r}, which {DATA} does not name. It names: "
                    f"{', '.join(shared) or 'nothing'}."
                )

    def data_of(self, volumes: Collection[str] | None) -> list[DataSet]:
        """Return the data sets of a profile that lists ``volumes``; None means all data sets."""
        return [data for data in self.data if volumes is None or data.name in volumes]

    def variables_of(self, volumes: Collection[str] | None) -> dict[str, str]:
        """Return the environment variables that tell a server which versions of data sets it has."""
        return variables({data.version: data.path for data in self.data_of(volumes) if data.version})

    def folders_of(self, user: str, groups: Collection[str]) -> list[GroupFolder]:
        """Return the group folders of which a user is a member."""
        return [folder for folder in self.folders if folder.has(user, groups)]


def items(text: str) -> Iterator[str]:
    """Yield the comma-separated items of a setting."""
    return (item.strip() for item in text.split(",") if item.strip())


def parse_data(text: str, hub: str) -> tuple[DataSet, ...]:
    """Return the data sets in a setting such as ``imagenet:/data/imagenet``; raises `SettingsError`."""
    found = tuple(_data_set(item, hub) for item in items(text))
    _distinct(DATA, [data.volume for data in found])
    _distinct(DATA, [data.path for data in found])
    return found


def parse_folders(text: str) -> tuple[GroupFolder, ...]:
    """Return the group folders in a setting such as ``vision: ada grace, nlp``; raises `SettingsError`."""
    found = tuple(_folder(item) for item in items(text))
    _distinct(FOLDERS, [folder.group for folder in found])
    return found


def _data_set(item: str, hub: str) -> DataSet:
    name, _, path = item.partition(":")
    version = name if "@" in name else ""
    volume = _volume_of(version) if version else name
    if not VOLUME.fullmatch(volume):
        raise SettingsError(f"{DATA} has {item!r}. It must have the form 'imagenet:/data/imagenet'.")
    if volume.startswith(f"{hub}-"):
        raise SettingsError(f"{DATA} names {volume!r}, which is one of the hub's own volumes. Use another name.")
    if not PATH.fullmatch(path):
        raise SettingsError(f"{DATA} puts {volume!r} at {path!r}. It must be a folder below /data or /mnt.")
    return DataSet(volume=volume, path=path, version=version)


def _volume_of(version: str) -> str:
    try:
        return parse_version(version).volume
    except UsageError as exc:
        raise SettingsError(f"{DATA} has {version!r}: {exc}.") from exc


def _folder(item: str) -> GroupFolder:
    group, colon, members = item.partition(":")
    group = group.strip()
    if not GROUP.fullmatch(group):
        raise SettingsError(
            f"{FOLDERS} has {item!r}. It must be groups such as 'vision: ada grace, nlp'; the name of a group consists "
            "of lower-case letters, digits and hyphens."
        )
    # JupyterHub converts user names to lower case.
    return GroupFolder(group=group, members=frozenset(members.lower().split()) if colon else None)


def _distinct(key: str, names: list[str]) -> None:
    """Raise `SettingsError` if ``names`` contains duplicates."""
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{key} names {name!r} twice.")
