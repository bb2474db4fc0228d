"""The settings that all deployments share, such as the hub's port and its folders.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

import secrets
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spawner_config.origins.hosts import DEFAULT_DOMAIN, DOMAIN_WANTED, is_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PORT = 8000
ORIGINS = ("per-user", "one")
"""The values of FARANDOLE_ORIGINS. With the default, "per-user", the servers of each user have a separate host."""
SECRET_BYTES = 32
DATABASE_EXAMPLE = "postgresql+psycopg://farandole:PASSWORD@postgres/farandole"


class SettingsError(ValueError):
    """Raised when an environment variable has an invalid value. The message contains the variable's name."""


class ProfileError(ValueError):
    """Raised when profiles.toml or FARANDOLE_GPUS has an invalid value. The message contains the key."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a hub.

    - ``port``: the port on which the hub listens
    - ``state``: the folder in which the hub stores its files
    - ``profiles``: the path of the profiles file
    - ``domain``: the hub's host, with users' hosts below it; an empty string means the default domain
    - ``one_origin``: whether all users share the hub's host instead
    """

    port: int = DEFAULT_PORT
    state: Path = ROOT / ".farandole"
    profiles: Path = ROOT / "hub" / "profiles.toml"
    domain: str = ""
    one_origin: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings from the FARANDOLE_ variables; raises `SettingsError`.

        If the state folder contains a file ``profiles.toml``, this file replaces the default profiles.
        """
        state = state_folder(environ)
        own = state / "profiles.toml"
        profiles = environ.get("FARANDOLE_PROFILES_FILE") or (own if own.exists() else cls.profiles)
        port = environ.get("FARANDOLE_PORT") or str(DEFAULT_PORT)
        if read_port(port) is None:
            raise SettingsError(f"FARANDOLE_PORT is {port!r}. It must be a number from 1 to 65535.")
        return cls(
            port=int(port),
            state=state,
            profiles=Path(profiles).expanduser().resolve(),
            domain=_read_domain(environ),
            one_origin=_has_one_origin(environ),
        )

    @property
    def public_domain(self) -> str:
        """The host of the hub's pages."""
        return self.domain or DEFAULT_DOMAIN

    @property
    def password_file(self) -> Path:
        """The path of the file with the password that all users of the local deployment share."""
        return self.state / "password"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the path of the folder in which the hub stores its files."""
    return Path(environ.get("FARANDOLE_STATE") or Settings.state).expanduser().resolve()


def _read_domain(environ: Mapping[str, str]) -> str:
    domain = environ.get("FARANDOLE_DOMAIN") or ""
    if domain and not is_domain(domain):
        raise SettingsError(f"FARANDOLE_DOMAIN is {domain!r}. It must be {DOMAIN_WANTED}.")
    return domain


def _has_one_origin(environ: Mapping[str, str]) -> bool:
    origins = environ.get("FARANDOLE_ORIGINS") or ORIGINS[0]
    if origins not in ORIGINS:
        raise SettingsError(f"FARANDOLE_ORIGINS is {origins!r}. It must be one of: {', '.join(ORIGINS)}.")
    return origins == "one"


def read_port(text: str) -> int | None:
    """Return the port number, or None if the text is not a valid port."""
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else None


def ensure_state(settings: Settings) -> None:
    """Create the state folder, which only its owner can access."""
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)


def ensure_password(settings: Settings) -> str:
    """Return the password that all users share. If the password file does not exist, generate it with mode 0600."""
    ensure_state(settings)
    return ensure_secret(settings.password_file, lambda: secrets.token_urlsafe(12) + "\n")


def ensure_secret(path: Path, make: Callable[[], str] = lambda: secrets.token_hex(SECRET_BYTES)) -> str:
    """Return the secret in the file. If the file does not exist, write a new secret to it, with mode 0600."""
    if not path.exists():
        # Write a temporary file and rename it. Otherwise, a hub that is killed here could leave an empty file.
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        part.write_text(make(), encoding="ascii")
        part.rename(path)
    return path.read_text(encoding="ascii").strip()


def needed(environ: Mapping[str, str], key: str, what: str) -> str:
    """Return the value of a required variable; raises `SettingsError` with ``what`` in its message if it is not set."""
    value = environ.get(key)
    if not value:
        raise SettingsError(f"{key} is not set. It must be {what}.")
    return value


def check_together(*checks: Callable[[], None]) -> None:
    """Run all checks, and raise one `SettingsError` with the messages of all checks that failed."""
    messages = []
    for check in checks:
        try:
            check()
        except SettingsError as exc:
            messages.append(str(exc))
    if messages:
        raise SettingsError("\n".join(messages))


@contextmanager
def exit_on_bad_settings() -> Iterator[None]:
    """End the hub with the message of a `SettingsError` or `ProfileError` instead of a traceback."""
    try:
        yield
    except (SettingsError, ProfileError) as exc:
        sys.exit(f"The hub does not start. {exc}")
