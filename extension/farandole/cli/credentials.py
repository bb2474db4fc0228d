"""The tokens that ``farandole login`` keeps, in a file that only the user can read."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from farandole.exceptions import UsageError

PAGE = re.compile(r"/(?:hub|user)(?:/|$)")
"""Where the path of a page of the hub or of a server begins in an address."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user's token for a hub."""

    url: str
    user: str
    token: str = field(repr=False)


def file() -> Path:
    """Return the path of the file with the tokens."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "farandole" / "hubs.json"


def address_of(url: str) -> str:
    """Return the address of a hub, without a path such as ``/hub/home`` or ``/user/ada/lab`` that a browser shows.

    Raises:
        UsageError: this is not the address of a web page.
    """
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in {"http", "https"}:
        raise UsageError(
            f"{url!r} is not the address of a hub; give the one in the browser, e.g. https://hub.example.org"
        )
    place = f"[{host}]" if ":" in host else host
    if port is not None:
        place += f":{port}"
    return f"{parts.scheme}://{place}{PAGE.split(parts.path)[0].rstrip('/')}"


def is_cleartext(url: str) -> bool:
    """Return whether others can read requests to a hub: they are not encrypted, and leave this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def logins() -> dict[str, Login]:
    """Return the kept logins by address.

    Raises:
        UsageError: other users can read the file, or it is damaged.
    """
    path = file()
    try:
        with path.open("rb") as stream:
            found, text = os.fstat(stream.fileno()), stream.read()
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise UsageError(f"the tokens in {path} cannot be read ({exc.strerror}).") from exc
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise UsageError(
            f"other users of this machine can read the tokens in {path}. Delete the file, revoke its tokens on the "
            "hub's Token page, and run `farandole login` again."
        )
    try:
        known = {url: Login(url=url, **one) for url, one in json.loads(text).items()}
        if not all(isinstance(one, str) for login in known.values() for one in astuple(login)):
            raise ValueError("a value is not a string")
    except (ValueError, TypeError, AttributeError) as exc:
        raise UsageError(f"{path} is damaged ({exc}). Delete it, and run `farandole login` again.") from exc
    return known


def login_for(url: str | None) -> Login | None:
    """Return the login for a hub, or without a ``url`` that of the only hub. Return None if there is none.

    Raises:
        UsageError: there are several hubs and no ``url``, or the file cannot be used.
    """
    known = logins()
    if url is not None:
        return known.get(address_of(url))
    if len(known) > 1:
        raise UsageError(
            f"there are logins for several hubs; choose one of them, in a notebook with `--hub URL`: "
            f"{', '.join(sorted(known))}"
        )
    return next(iter(known.values()), None)


def keep(login: Login) -> None:
    """Add a login, in place of an earlier one for the same hub."""
    with _locked():
        _write({**logins(), login.url: login})


def forget(url: str) -> None:
    """Remove the login for a hub, if there is one."""
    with _locked():
        known = logins()
        if known.pop(url, None) is not None:
            _write(known)


@contextmanager
def _locked() -> Iterator[None]:
    """Wait until no other command changes the file."""
    folder = file().parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".hubs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(known: Mapping[str, Login]) -> None:
    path = file()
    text = json.dumps({url: {"user": one.user, "token": one.token} for url, one in known.items()}, indent=2)
    # mkstemp makes a file that no other user can ever open.
    descriptor, temporary = tempfile.mkstemp(prefix=".hubs-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
            stream.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
