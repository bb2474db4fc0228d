"""Records which messages the files of a run hold, so that another driver continues them without a gap.

A worker keeps the messages of each of its kernels in a run as a journal, numbered from 1. ``positions.json`` has

- ``kernels``: the number of the last message whose content the files hold, by kernel id;
- ``sizes``: the sizes that the files had then, in bytes, by name.

A driver that takes over the run cuts the files back to these sizes and skips the messages up to these numbers. The rest
was written just before the earlier driver was killed, and is in the journals.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from farandole.protocol import MOST_RANKS
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_json

POSITIONS = "positions.json"
JournalPosition: TypeAlias = tuple[str, int]
"""The place of a message: the id of its kernel, and its number in the worker's journal of that kernel in the run."""

FOLDERS = {"metrics": ".jsonl", "usage": ".jsonl", "logs": ".log"}


def rank_files(run: Path, folder: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield rank and path of each file ``rank-<n><suffix>`` in a folder of a run; the path is relative to the run."""
    for path in sorted((run / folder).glob(f"rank-*{suffix}")):
        number = path.stem.removeprefix("rank-")
        if number.isascii() and number.isdigit() and len(number) < 10 and int(number) < MOST_RANKS:
            yield int(number), f"{folder}/{path.name}"


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the sizes of a run's files by name."""
    names = [name for part, suffix in FOLDERS.items() for _, name in rank_files(folder, part, suffix)]
    return {name: (folder / name).lstat().st_size for name in names}


def cut_back(folder: Path, keep: Container[int] = ()) -> Mapping[str, int]:
    """Cut a run's files back to the sizes in ``positions.json`` and return its numbers by kernel.

    - The files of the ranks to ``keep`` stay as they are: no worker has a journal of those.
    - The files are renamed to ``.old``, and the journals supply all content again, if there are no positions (a run of
      an older version) or a file is shorter than its size there (a crash of the machine).
    """
    found = _read(folder)
    if found is not None and any(_size(folder, name) < size for name, size in found["sizes"].items()):
        found = None
    if found is None:
        # Old positions must not be applied to the new files.
        with suppress(OSError):
            (folder / POSITIONS).unlink(missing_ok=True)
    for part, suffix in FOLDERS.items():
        for rank, name in rank_files(folder, part, suffix):
            # A volume that refuses this refuses writes as well, and the run has a notice about those.
            with suppress(OSError):
                if rank not in keep:
                    _cut(folder, name, None if found is None else found["sizes"].get(name, 0))
    return {} if found is None else found["kernels"]


def _read(folder: Path) -> Mapping[str, Mapping[str, int]] | None:
    try:
        found = read_json(folder, POSITIONS, SMALL_JSON_BYTES)
        return {key: {name: int(number) for name, number in found[key].items()} for key in ("kernels", "sizes")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _size(folder: Path, name: str) -> int:
    with suppress(OSError, ValueError), open_regular(folder, name) as file:
        return os.fstat(file.fileno()).st_size
    return 0


def _cut(folder: Path, name: str, size: int | None) -> None:
    """Cut a file back to a size; without a size, or if it is not a regular file, put it aside."""
    path = folder / name
    try:
        with open_regular(folder, name) as file:
            longer = size is not None and os.fstat(file.fileno()).st_size > size
    except ValueError:
        size = None
    if size is None:
        path.rename(path.with_name(f"{path.name}.old"))
    elif longer:
        os.truncate(path, size)
