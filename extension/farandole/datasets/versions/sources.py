"""Where a mirror of a version reads its files: a folder, or a notebook server of another hub that has the version."""

from __future__ import annotations

import base64
import os
import re
import ssl
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from http.client import HTTPException
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from farandole.datasets.versions.manifest import MANIFEST
from farandole.datasets.versions.names import DataVersion
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular, reason

TOKEN = "FARANDOLE_MIRROR_TOKEN"
"""The variable with a token of the other hub. A command line would show it to all users of the machine."""
ROUTE = "farandole/data-sets"
"""The route of notebook servers for their versions, see `farandole.server.data_sets`."""
SERVER = re.compile(r"https?://[^/?#]+(?:/[^?#]*?)?/user/[^/?#]+")
TIMEOUT = 120.0
"""Seconds in which the other hub sends something."""


def encode(path: str) -> str:
    """Return the name of a file for a URL. Paths may have any bytes, which proxies would change."""
    return base64.urlsafe_b64encode(os.fsencode(path)).decode()


def decode(name: str) -> str:
    """Return the path that `encode` got. Raises ValueError."""
    return os.fsdecode(base64.b64decode(name, altchars=b"-_", validate=True))


class Source(ABC):
    """A place that has a version."""

    @abstractmethod
    def manifest(self) -> bytes:
        """Return the manifest. Raises DataSetError."""

    @abstractmethod
    def open(self, path: str) -> AbstractContextManager[BufferedIOBase]:
        """Open a file for reading. Raises DataSetError, OSError or ValueError."""


class FolderSource(Source):
    """A folder with a version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def manifest(self) -> bytes:
        """Return the manifest. Raises DataSetError."""
        try:
            with self.open(MANIFEST) as file:
                return file.read()
        except (OSError, ValueError) as exc:
            raise DataSetError(f"{self._folder} is not a version of a data set: {reason(exc)}") from exc

    def open(self, path: str) -> AbstractContextManager[BufferedIOBase]:
        """Open a file for reading."""
        return open_regular(self._folder, path)


class _NoRedirects(HTTPRedirectHandler):
    """Turns redirections into errors. A hub redirects to its login page, and the token is for this hub only."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        return None


class ServerSource(Source):
    """A notebook server of another hub. ``url`` ends with ``/user/NAME``, and ``token`` is a token of its user."""

    def __init__(self, url: str, version: DataVersion, token: str) -> None:
        self._url = f"{url}/{ROUTE}/{version}"
        self._version = version
        self._headers = {"Authorization": f"token {token}"}
        # One context for all connections, because reading the certificates of authorities takes longer than most files.
        self._opener = build_opener(_NoRedirects, HTTPSHandler(context=ssl.create_default_context()))

    def manifest(self) -> bytes:
        """Return the manifest. Raises DataSetError."""
        try:
            with self._get("manifest") as answer:
                return answer.read()
        except (HTTPException, OSError) as exc:
            raise DataSetError(f"the connection to {urlsplit(self._url).netloc} ended ({exc}); try again") from exc

    def open(self, path: str) -> AbstractContextManager[BufferedIOBase]:
        """Open a file for reading. Raises DataSetError."""
        return self._get(f"files/{encode(path)}")

    def _get(self, what: str) -> AbstractContextManager[BufferedIOBase]:
        try:
            found: AbstractContextManager[BufferedIOBase] = self._opener.open(
                Request(f"{self._url}/{what}", headers=self._headers), timeout=TIMEOUT
            )
        except HTTPError as exc:
            exc.close()
            raise DataSetError(self._why(exc.code)) from exc
        except (URLError, HTTPException, OSError) as exc:
            raise DataSetError(f"{urlsplit(self._url).netloc} does not answer ({exc})") from exc
        return found

    def _why(self, status: int) -> str:
        place = self._url.removesuffix(f"/{ROUTE}/{self._version}")
        if status == 404:
            return f"the server at {place} does not have {self._version}; `%dataset` shows what a server has"
        if status in {301, 302, 401, 403}:
            return (
                f"no notebook server at {place} admits the token in {TOKEN}. Start the server, and make a token of its "
                "user at /hub/token of that hub."
            )
        return f"the server at {place} answered {status} for {self._version}; try again in a minute"


def open_source(text: str, version: DataVersion) -> Source:
    """Return the source that a user names: a folder, or the address of a notebook server. Raises UsageError."""
    if "://" in text:
        if not (found := SERVER.match(text)):
            raise UsageError(
                f"{text!r} is not the address of a notebook server; give the one in the browser, such as "
                "https://hub.example.org/user/ada/lab"
            )
        if not (token := os.environ.get(TOKEN)):
            raise UsageError(f"set {TOKEN} to a token of the other hub, which its page /hub/token makes")
        return ServerSource(found[0], version, token)
    folder = Path(text).expanduser()
    below = folder / version.name / str(version.number)
    for each in (below, folder):
        if (each / MANIFEST).is_file():
            return FolderSource(each)
    raise UsageError(f"neither {folder} nor {below} is a version of a data set: they have no {MANIFEST}")
