"""Names of images that an administrator admits."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*(/[A-Za-z0-9][A-Za-z0-9_.:@-]*)*")
"""Matches names that can be a part of a URL's path: without encoded characters, and without the segment '..'."""


def is_admitted(image: str, patterns: Iterable[str]) -> bool:
    """Return whether ``image`` is a valid image name that matches one of the patterns.

    ``*`` does not match a slash, so that it does not admit other repositories.
    """
    return IMAGE.fullmatch(image) is not None and any(
        image.count("/") == pattern.count("/") and fnmatchcase(image, pattern) for pattern in patterns
    )
