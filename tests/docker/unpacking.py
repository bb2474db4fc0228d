"""Cells that write files into a user's home in a container."""

from __future__ import annotations

import base64
import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

UNPACK = """
import base64, io, tarfile
tarfile.open(fileobj=io.BytesIO(base64.b64decode({archive!r}))).extractall({target!r})
"""


def unpacking(files: Iterable[Path], folder: Path, target: str) -> str:
    """Return a cell that writes files into the folder ``target``, with their paths relative to ``folder``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for file in files:
            tar.add(file, file.relative_to(folder))
    return UNPACK.format(archive=base64.b64encode(packed.getvalue()).decode(), target=target)
