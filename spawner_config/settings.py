"""What the environment says about a hub: where it listens and where its files are."""

from __future__ import annotations

import secrets
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PORT = 8000


class SettingsError(ValueError):
    """Raised when a FARANDOLE_ variable has a value that cannot work; names it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where a hub listens (``port``), keeps its files (``state``) and finds its profiles."""

    port: int = DEFAULT_PORT
    state: Path = ROOT / ".farandole"
    profiles: Path = ROOT / "hub" / "profiles.toml"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings of FARANDOLE_PORT, FARANDOLE_STATE and FARANDOLE_PROFILES_FILE.

        A file ``profiles.toml`` in the state folder goes before the profiles that come with the hub.
        """
        state = Path(environ.get("FARANDOLE_STATE") or cls.state).expanduser().resolve()
        own = state / "profiles.toml"
        profiles = environ.get("FARANDOLE_PROFILES_FILE") or (own if own.exists() else cls.profiles)
        return cls(
            port=_port(environ.get("FARANDOLE_PORT") or str(DEFAULT_PORT)),
            state=state,
            profiles=Path(profiles).expanduser().resolve(),
        )

    @property
    def password_file(self) -> Path:
        """The file that holds the password of the local deployment."""
        return self.state / "password"


def ensure_state(settings: Settings) -> None:
    """Make the state folder, readable by its owner alone."""
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)


def ensure_password(settings: Settings) -> str:
    """Return the password that all users share, generated at the first call and kept with mode 0600."""
    ensure_state(settings)
    path = settings.password_file
    if not path.exists():
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        part.write_text(secrets.token_urlsafe(12) + "\n", encoding="utf-8")
        part.rename(path)
    return path.read_text(encoding="utf-8").strip()


def needed(environ: Mapping[str, str], key: str, what: str) -> str:
    """Return a variable that must be there; raises `SettingsError` that says what it must be."""
    value = environ.get(key)
    if not value:
        raise SettingsError(f"{key} is not set. It must be {what}.")
    return value


@contextmanager
def ending_at_a_bad_setting(*kinds: type[ValueError]) -> Iterator[None]:
    """End the hub with the words of an error of these kinds alone: the traceback would hide what the admin must do."""
    try:
        yield
    except kinds as exc:
        sys.exit(f"The hub does not start. {exc}")


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise SettingsError(f"FARANDOLE_PORT is {text!r}. It must be a number from 1 to 65535.")
    return int(text)
