"""The file ``version.json`` in the hub's state folder: which version of Farandole has used the state last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version
from pydantic import BaseModel, ValidationError, field_validator

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "version.json"
RESTORE = "restore the backup from before the upgrade (`make restore`)"


class Before(BaseModel):
    """The state before the last upgrade.

    - ``version``: the version that had used the state, or None if that version wrote no ``version.json``
    - ``revision``: the revision of the database's schema
    - ``database``: the name of the copy of the SQLite database, or None if its schema has not changed
    """

    version: str | None = None
    revision: str
    database: str | None = None


class StateVersion(BaseModel):
    """The version of Farandole that has used the state last, and the schema of its database."""

    version: str
    revision: str
    before: Before | None = None

    @field_validator("version")
    @classmethod
    def _comparable(cls, value: str) -> str:
        # Its error is a ValueError, which pydantic reports.
        Version(value)
        return value

    @classmethod
    def read(cls, state: Path) -> StateVersion | None:
        """Read the file, or return None if there is none; raises `SettingsError` if it is damaged."""
        path = state / NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as exc:
            raise SettingsError(
                f"{path} is damaged, so the hub cannot tell which version has used its state. Write the version into "
                'it, for example {"version": "0.1.0", "revision": ""}, or ' + f"{RESTORE}."
            ) from exc

    def write(self, state: Path) -> None:
        """Write the file, and replace an existing one in one step."""
        part = state / f"{NAME}.part"
        part.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        part.replace(state / NAME)

    def check(self, version: str) -> None:
        """Raise `SettingsError` if ``version``, that of the hub, is older than the version that has used the state."""
        if Version(self.version) > Version(version):
            raise SettingsError(
                f"Version {self.version} of Farandole has used the hub's state, and this hub has version {version}, "
                f"which is older and could damage it. Nothing was changed. Use version {self.version} or newer, or "
                f"{RESTORE}."
            )
