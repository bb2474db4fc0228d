"""The operator's files, such as .env, which are part of a backup."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def read_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the contents of those files that exist."""
    return {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}


def write_files(folder: Path, files: Mapping[str, str]) -> set[str]:
    """Write files that do not exist, and return their names. Others stay; theirs are written beside them."""
    written = set()
    for name, text in files.items():
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if path.exists():
            path = path.with_name(f"{name}.restored")
            print(f"{name} exists and stays as it is. That of the backup is now {path}.", file=sys.stderr)
            path.unlink(missing_ok=True)
        else:
            written.add(name)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    return written
