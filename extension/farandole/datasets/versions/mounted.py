"""The versions of data sets that a server has. The hub names them in an environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from farandole.datasets.versions.manifest import digest_in
from farandole.exceptions import DataSetError, UsageError
from farandole.suggestions import did_you_mean

VARIABLE = "FARANDOLE_MOUNTED_DATA"
"""A JSON object with the folder of each version, such as ``{"imagenet@2": "/data/imagenet"}``."""
MISSING = "missing"
"""Stands for the digest of a version that is not in its folder."""


def variables(folders: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that tell a server its versions."""
    return {VARIABLE: json.dumps(folders)} if folders else {}


def mounted() -> dict[str, Path]:
    """Return the folders of the versions that this server has."""
    return {name: Path(folder) for name, folder in json.loads(os.environ.get(VARIABLE) or "{}").items()}


def find(name: str) -> Path:
    """Return the folder of a version. Raises UsageError if this server does not have it."""
    folders = mounted()
    if name not in folders:
        known = f"it has {', '.join(folders)}" if folders else "it has none"
        raise UsageError(f"this server has no data set {name!r}; {known}.{did_you_mean(name, folders)}")
    return folders[name]


def digests() -> dict[str, str]:
    """Return the digest of each version that this server should have, or `MISSING`."""
    return {name: _digest(folder) for name, folder in mounted().items()}


def _digest(folder: Path) -> str:
    try:
        return digest_in(folder)
    except DataSetError:
        return MISSING
