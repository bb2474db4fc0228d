"""The tokens that ``farandole login`` keeps, in a file that only the user can read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from farandole.exceptions import UsageError

MODE = 0o600


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user's token for a hub."""

    url: str
    user: str
    token: str


def file() -> Path:
    """Return the path of the file with the tokens."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "farandole" / "hubs.json"


def address_of(url: str) -> str:
    """Return the address of a hub, without a path such as ``/hub/home`` that a browser shows.

    Raises:
        UsageError: this is no address of a web page.
    """
    text = url if "://" in url else f"https://{url}"
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"{url!r} is no address of a hub; give the one in the browser, e.g. https://hub.example.org")
    base = parts.path.partition("/hub")[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{base}"


def logins() -> dict[str, Login]:
    """Return the kept logins by address.

    Raises:
        UsageError: other users can read the file, or it is damaged.
    """
    path = file()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    if mode & ~MODE:
        raise UsageError(
            f"other users of this machine can read the tokens in {path}. Delete the file, revoke its tokens on the "
            "hub's Token page, and run `farandole login` again."
        )
    try:
        return {url: Login(url=url, **one) for url, one in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as exc:
        raise UsageError(f"{path} is damaged ({exc}). Delete it, and run `farandole login` again.") from exc


def login_for(url: str | None) -> Login | None:
    """Return the login for a hub, or without a ``url`` that of the only hub. Return None if there is none.

    Raises:
        UsageError: there are several hubs and no ``url``, or the file cannot be used.
    """
    known = logins()
    if url is not None:
        return known.get(address_of(url))
    if len(known) > 1:
        raise UsageError(f"there are logins for several hubs; choose one of them: {', '.join(sorted(known))}")
    return next(iter(known.values()), None)


def keep(login: Login) -> None:
    """Add a login, in place of an earlier one for the same hub."""
    _write({**logins(), login.url: login})


def forget(url: str) -> Login | None:
    """Remove the login for a hub and return it, or return None if there is none."""
    known = logins()
    found = known.pop(url, None)
    if found is not None:
        _write(known)
    return found


def _write(known: Mapping[str, Login]) -> None:
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    text = json.dumps({url: {"user": one.user, "token": one.token} for url, one in known.items()}, indent=2)
    try:
        # The mode must be right from the beginning, so that no other user can open the file before it is changed.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
