"""The folders of the mirrors of other hubs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hub.services.snapshots.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path


class Mirrors:
    """The repositories of other hubs, in a folder for each hub beside those of this hub's users.

    They may take all of the disk except what every upload leaves free: only the other hub knows how much it needs.
    """

    def __init__(self, folder: Path) -> None:
        """Use the folder of all repositories. A user's repository has no name that begins with a point."""
        self._folder = folder / ".mirrors"
        self._found: dict[tuple[str, str], Repository] = {}

    def of(self, hub: str, name: str) -> Repository:
        """Return a repository of another hub, whose folder may not exist yet."""
        key = hub, name
        if key not in self._found:
            self._found[key] = Repository(self._folder / hub / name, sys.maxsize)
        return self._found[key]
