"""Asks the hub to publish a folder of the user's home, because servers cannot write to the volumes of data sets."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from farandole.datasets.versions.copy import Copied
from farandole.datasets.versions.manifest import files_in
from farandole.datasets.versions.names import DataVersion, parse_version
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import parse_json, printable, reason

COPYING, PUBLISHED, FAILED = "copying", "published", "failed"
"""The states of a publication."""
MOST_BYTES = 2**20
"""The largest answer that is read."""
TIMEOUT = 30.0
POLL_SECONDS = 1.0
RESTART_SECONDS = 120.0
"""How many seconds the hub may be unreachable while it copies a folder. A hub that restarts is."""
NOT_FOUND = 404
BLOCK, INODE = 4096, 16384
"""The bytes of a block in ext4, and for how many bytes of a volume it can have a file."""


def publish_at_hub(
    source: Path,
    name: str,
    *,
    environ: Mapping[str, str] = os.environ,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[DataVersion, Copied]:
    """Let the hub copy a folder to the volume of the next version of a data set, and return when it is complete.

    Raises:
        UsageError: the folder has links or no files.
        DataSetError: the hub refuses, for example a folder outside of the home, or cannot copy it.
    """
    order = _order(source)
    url, token = environ.get("JUPYTERHUB_API_URL", ""), environ.get("JUPYTERHUB_API_TOKEN", "")
    path = f"farandole/users/{quote(environ.get('JUPYTERHUB_USER', ''), safe='')}/data-sets/{name}"
    hub = _Hub(f"{url.rstrip('/')}/{path}", token)
    hub.ask("POST", order)
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            found = hub.ask("GET")
            end = time.monotonic() + RESTART_SECONDS
        except HubUnreachableError:
            if time.monotonic() > end:
                raise
            found = {"state": COPYING}
        if found.get("state") != COPYING:
            return _outcome(found)
        sleep(POLL_SECONDS)


class HubUnreachableError(DataSetError):
    """Raised when the hub does not answer."""


class _Hub:
    """The hub's handler for one data set."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
        # The hub is in the user's network, and a proxy for the internet must not get the token.
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer. Raises DataSetError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url, data=data, headers=self._headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                return parse_json(answer.read(MOST_BYTES), "the hub's answer")
        except HTTPError as exc:
            with exc:
                raise _refusal(method, exc) from exc
        except (URLError, HTTPException, OSError) as exc:
            raise HubUnreachableError(f"the hub does not answer ({exc}); try again in a minute") from exc
        except ValueError as exc:
            raise DataSetError(f"the hub sent an invalid answer ({reason(exc)}); ask its administrator") from exc


def _order(source: Path) -> dict[str, Any]:
    """Return what the hub needs to know: the folder, and the space that its files take."""
    folder = source.resolve()
    if not str(folder).isprintable():
        raise UsageError(f"the hub cannot publish {str(folder)!r}, because its name is not readable text; rename it")
    try:
        paths = files_in(folder)
        if not paths:
            raise UsageError(f"{source} has no files")
        return {"folder": str(folder), "bytes": sum(_space((folder / path).lstat().st_size) for path in paths)}
    except OSError as exc:
        raise DataSetError(f"{source} cannot be read: {reason(exc)}") from exc


def _space(size: int) -> int:
    """Return how many bytes of a volume a file of this size takes: whole blocks, and its part of the table of files."""
    return max(-(-size // BLOCK) * BLOCK, INODE)


def _refusal(method: str, refused: HTTPError) -> DataSetError:
    if method == "GET" and refused.code == NOT_FOUND:
        return DataSetError("the hub was restarted and no longer copies the folder, so it is not published; try again")
    try:
        said = printable(str(parse_json(refused.read(MOST_BYTES), "the hub's answer")["message"]))
    except (ValueError, KeyError, OSError):
        said = ""
    return DataSetError(f"the hub does not publish the folder: {said or f'{refused.code} {refused.reason}'}")


def _outcome(found: Mapping[str, Any]) -> tuple[DataVersion, Copied]:
    if found.get("state") == FAILED:
        raise DataSetError(f"the folder is not published: {printable(str(found.get('message')))}")
    try:
        copied = Copied(files=int(found["files"]), bytes=int(found["bytes"]), digest=printable(str(found["digest"])))
        return parse_version(str(found["version"])), copied
    except (KeyError, TypeError, ValueError) as exc:
        raise DataSetError("the hub sent an invalid answer; ask its administrator") from exc
