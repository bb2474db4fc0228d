"""Tells whether a checkpoint on disk is as it was written, with the digests in its manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from farandole.protocol import CHECKPOINT_MANIFEST
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_json

FORMAT = 1


class DamagedError(Exception):
    """Raised if a checkpoint is incomplete, has changed since it was written, or cannot be read by this version.

    The message states what is wrong.
    """


def verified(path: Path, *, share: int = 0, shares: int = 1) -> dict[str, Any]:
    """Return the manifest of a checkpoint. Raises DamagedError if the checkpoint is not intact.

    Of ``shares`` processes that call this together, each compares the digests of its share of the files.
    """
    try:
        manifest = read_json(path, CHECKPOINT_MANIFEST, SMALL_JSON_BYTES)
        # Dealt from the largest to the smallest, so that all shares take about the same time.
        files = sorted(manifest["files"].items(), key=lambda file: (-file[1]["bytes"], file[0]))
        for name, expected in files[share::shares]:
            if described(path / name) != expected:
                raise DamagedError(f"{name} has changed since it was written")
        if manifest["format"] != FORMAT:
            raise DamagedError(f"its format is {manifest['format']}, and this version of farandole reads {FORMAT}")
    except FileNotFoundError as exc:
        raise DamagedError(f"{Path(exc.filename).name} is missing") from exc
    except OSError as exc:
        raise DamagedError(f"{Path(exc.filename or path).name} cannot be read: {exc.strerror}") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedError(f"{CHECKPOINT_MANIFEST} cannot be read") from exc
    return manifest


def described(path: Path) -> dict[str, Any]:
    """Return the size and the digest of a file. Raises DamagedError if it cannot be read."""
    try:
        file = open_regular(path.parent, path.name)
    except ValueError as exc:
        raise DamagedError(f"{path.name} cannot be read: {exc}") from exc
    with file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}
