"""Places of files: paths on a disk of this machine, and URLs of object stores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow import fs

from farandole.exceptions import UsageError

PASSWORD = re.compile(r"[^/]+://[^/@]*:[^/@]*@")
WITHIN_URLS = ":/?#[]@!$&'()*+,;=%~"
"""The characters of a URL that are neither letters nor digits."""


def is_url(name: str) -> bool:
    """Return whether a name is a URL, and not a path."""
    return "://" in name


def absolute(name: str) -> str:
    """Return a URL as it is, and a path as an absolute one. Raises UsageError if a URL has a password."""
    if PASSWORD.match(name):
        raise UsageError(
            "the URL of the data has a password, which errors and pickles would show; leave it out, and set the "
            "variables of the store on all ranks, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return name if is_url(name) else str(Path(name).expanduser().absolute())


def opened(name: str) -> tuple[Any, str]:
    """Return the file system of an absolute path or a URL, and the path in it.

    Credentials are those of this process, as is the address of a store in ``AWS_ENDPOINT_URL``.

    Raises:
        UsageError: the URL is not valid, or no library reads such URLs.
        OSError: the store does not answer.
    """
    if not is_url(name):
        return fs.LocalFileSystem(), name
    try:
        return fs.FileSystem.from_uri(quote(name, safe=WITHIN_URLS))  # type: ignore[no-any-return]
    except ValueError as exc:
        if "Unrecognized filesystem type" not in str(exc):
            raise UsageError(f"{name} is not a valid URL: {cause(exc)}. An example is s3://bucket/table.") from exc
    return _by_fsspec(name)


def _by_fsspec(name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(name)
    except (ImportError, ValueError) as exc:
        raise UsageError(
            f"{name} cannot be opened: {cause(exc)}. Install fsspec's package for such URLs on all ranks."
        ) from exc
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def cause(error: Exception) -> str:
    """Return the message of an error in one line and without a full stop, as a part of another message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()).rstrip(" .")
