"""Versions of data sets on a hub without containers, in the folder ``datasets`` of the hub's state.

Servers of such a hub mount nothing. They read a version in the hub's folder, which is read-only, and publishers write
new ones beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.datasets.versions.manifest import MANIFEST
from farandole.datasets.versions.mounted import variables
from farandole.datasets.versions.names import parse_version

from spawner_config.profiles.options import OptionsError
from spawner_config.publishing.settings import Publishers
from spawner_config.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spawner_config.profiles.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class LocalData:
    """The versions in ``folder`` that servers have, and the users who publish there."""

    shares: Shares
    folder: Path
    publishers: Publishers

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], folder: Path) -> LocalData:
        """Read FARANDOLE_SHARED_VOLUMES and FARANDOLE_DATA_PUBLISHERS; raises `SettingsError`."""
        shares = Shares.from_environment(environ, "farandole")
        return cls(shares=shares, folder=folder, publishers=Publishers.from_environment(environ))

    def set_variables(self, spawner: Any, profile: Profile) -> None:
        """Tell a server where its versions are, and where its user publishes. Raises `OptionsError`."""
        own = {**variables(self._folders(profile)), **self.publishers.variables(spawner, str(self.folder))}
        spawner.environment = {**spawner.environment, **own}

    def _folders(self, profile: Profile) -> dict[str, str]:
        found = {}
        for name in [data.version for data in self.shares.data_of(profile.data) if data.version]:
            version = parse_version(name)
            folder = self.folder / version.name / str(version.number)
            if not (folder / MANIFEST).is_file():
                raise OptionsError(
                    f"There is no data set {name}, which FARANDOLE_SHARED_VOLUMES names: {folder} has no manifest. The "
                    "administrator must remove it from FARANDOLE_SHARED_VOLUMES until it is published."
                )
            found[name] = str(folder)
        return found
