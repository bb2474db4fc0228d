"""The folder with what an upgrade needs to go back. It exists while an upgrade is in progress, or was interrupted."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hub.doctor.deployment import COMPOSE_FILE, ENV_FILE
from hub.upgrade.compose import UpgradeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = ".upgrade"
VERSIONS = "versions.json"
VERSION_SETTING = "FARANDOLE_VERSION"


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The record of an upgrade in ``folder``: the settings, the compose file and the PostgreSQL dump of before.

    ``before`` is the old version, and ``settings`` are the changes in `.env`, with the new version.
    """

    folder: Path
    before: str
    settings: dict[str, str]

    @classmethod
    def read(cls, hub_folder: Path) -> Journal | None:
        """Return the journal of an interrupted upgrade, or None if there is none; raises `UpgradeError`."""
        folder = hub_folder / NAME
        if not folder.is_dir():
            return None
        try:
            written = json.loads((folder / VERSIONS).read_bytes())
            return cls(folder=folder, before=written["before"], settings=written["settings"])
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise UpgradeError(
                f"{folder / VERSIONS} of an interrupted upgrade cannot be read ({exc}). {folder / ENV_FILE} has the "
                f"settings of before: compare them with {hub_folder / ENV_FILE}, and remove {folder}."
            ) from exc

    @classmethod
    def begin(cls, hub_folder: Path, before: str, settings: Mapping[str, str], revision: str) -> Journal:
        """Write a new journal in one step. ``revision`` is the commit of the hub's image."""
        part = hub_folder / f"{NAME}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        shutil.copy(hub_folder / ENV_FILE, part / ENV_FILE)
        if (text := committed_compose_file(hub_folder, revision)) is not None:
            (part / COMPOSE_FILE).write_bytes(text)
        journal = cls(folder=hub_folder / NAME, before=before, settings=dict(settings))
        (part / VERSIONS).write_text(json.dumps({"before": before, "settings": journal.settings}), encoding="utf-8")
        part.rename(journal.folder)
        return journal

    @property
    def to(self) -> str:
        """The new version."""
        return self.settings[VERSION_SETTING]

    @property
    def env(self) -> str:
        """The text of the `.env` of before."""
        return (self.folder / ENV_FILE).read_text(encoding="utf-8")

    @property
    def compose_file(self) -> Path | None:
        """The compose file of before, or None if it is the one that is still in the hub's folder."""
        path = self.folder / COMPOSE_FILE
        return path if path.exists() else None

    @property
    def dump(self) -> Path | None:
        """The dump of PostgreSQL, whose name is the revision of its schema, or None if there is none."""
        return next(self.folder.glob("*.sql"), None)

    def finish(self) -> Path:
        """Rename the folder, so that the operator can delete it, and return its new path."""
        kept = self.folder.with_name(f"upgraded-from-{self.before}")
        number = 1
        while kept.exists():
            number += 1
            kept = kept.with_name(f"upgraded-from-{self.before}-{number}")
        return self.folder.rename(kept)

    def remove(self) -> None:
        """Remove the folder."""
        # After this step, a removal that is killed leaves no damaged journal.
        part = self.folder.with_name(f"{NAME}.part")
        shutil.rmtree(part, ignore_errors=True)
        self.folder.rename(part)
        shutil.rmtree(part)


def committed_compose_file(folder: Path, revision: str) -> bytes | None:
    """Return the compose file of a commit, or None if the folder is no checkout that has it.

    An operator updates the checkout before the upgrade. The file then needs programs that the old image does not have.
    """
    command = ["git", "-C", str(folder), "show", f"{revision.removesuffix('-dirty')}:./{COMPOSE_FILE}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout
