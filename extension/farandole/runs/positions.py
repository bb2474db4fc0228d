"""Records which messages the files of a run hold, so that another driver continues them without a gap.

A worker keeps the messages of each of its kernels in a run as a journal, numbered from 1. ``positions.json`` has

- ``kernels``: the number of the last message whose content the files hold, by kernel id;
- ``sizes``: the sizes that the files had then, in bytes, by name.

A driver that takes over the run cuts the files back to these sizes and skips the messages up to these numbers. The rest
was written just before the earlier driver was killed, and is in the journals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

POSITIONS = "positions.json"
JournalPosition: TypeAlias = tuple[str, int]
"""The place of a message: the id of its kernel, and its number in the worker's journal of that kernel in the run."""

FOLDERS = {"metrics": ".jsonl", "usage": ".jsonl", "logs": ".log"}


def rank_files(folder: Path, suffix: str) -> Iterator[tuple[int, Path]]:
    """Yield rank and path of each file ``rank-<n><suffix>`` of a folder."""
    for path in sorted(folder.glob(f"rank-*{suffix}")):
        number = path.stem.removeprefix("rank-")
        if number.isdigit():
            yield int(number), path


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the sizes of a run's files by name."""
    files = [path for name, suffix in FOLDERS.items() for _, path in rank_files(folder / name, suffix)]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def cut_back(folder: Path, keep: Container[int] = ()) -> Mapping[str, int]:
    """Cut a run's files back to the sizes in ``positions.json`` and return its numbers by kernel.

    - The files of the ranks to ``keep`` stay as they are: no worker has a journal of those.
    - The files are renamed to ``.old``, and the journals supply all content again, if there are no positions (a run of
      an older version) or a file is shorter than its size there (a crash of the machine).
    """
    found = _read(folder / POSITIONS)
    if found is not None and any(_size(folder / name) < size for name, size in found["sizes"].items()):
        found = None
    if found is None:
        # Old positions must not be applied to the new files.
        with suppress(OSError):
            (folder / POSITIONS).unlink(missing_ok=True)
    for name, suffix in FOLDERS.items():
        for rank, path in rank_files(folder / name, suffix):
            # A volume that refuses this refuses writes as well, and the run has a notice about those.
            with suppress(OSError):
                if rank not in keep:
                    _cut(path, None if found is None else found["sizes"].get(f"{name}/{path.name}", 0))
    return {} if found is None else found["kernels"]


def _read(path: Path) -> Mapping[str, Mapping[str, int]] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {key: {name: int(number) for name, number in found[key].items()} for key in ("kernels", "sizes")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cut(path: Path, size: int | None) -> None:
    if size is None:
        path.rename(path.with_name(f"{path.name}.old"))
    elif path.stat().st_size > size:
        os.truncate(path, size)
