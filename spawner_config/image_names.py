"""Names of images that an administrator admits."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_admitted(image: str, patterns: Iterable[str]) -> bool:
    """Return whether the name of an image matches one of the patterns.

    ``*`` does not match a slash, so that it does not admit other repositories.
    """
    return any(image.count("/") == pattern.count("/") and fnmatchcase(image, pattern) for pattern in patterns)
