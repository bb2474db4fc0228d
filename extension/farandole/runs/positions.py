"""Records which messages the files of a run hold, so that another driver can continue without a gap.

During a run, a worker keeps a journal for each of its kernels: the kernel's messages, numbered from 1.
``positions.json`` has

- ``kernels``: the number of the last message whose content is in the files, by kernel id;
- ``sizes``: the sizes of the files after that message, in bytes, by file name.

A driver that takes over the run truncates the files to these sizes and skips the messages up to these numbers. Data
beyond these sizes was written just before the earlier driver was killed. It is added again from the journals.
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
"""The position of a message: the id of the kernel that sent it, and its number in the journal for that kernel."""

FOLDERS = {"metrics": ".jsonl", "usage": ".jsonl", "logs": ".log"}


def rank_files(run: Path, folder: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the rank and path of each file ``rank-<n><suffix>`` in a folder of a run. Paths are relative to ``run``."""
    for path in sorted((run / folder).glob(f"rank-*{suffix}")):
        number = path.stem.removeprefix("rank-")
        if number.isascii() and number.isdigit() and len(number) < 10 and int(number) < MOST_RANKS:
            yield int(number), f"{folder}/{path.name}"


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the sizes of a run's files in bytes, by file name."""
    names = [name for part, suffix in FOLDERS.items() for _, name in rank_files(folder, part, suffix)]
    return {name: (folder / name).lstat().st_size for name in names}


def cut_back(folder: Path, keep: Container[int] = ()) -> Mapping[str, int]:
    """Truncate a run's files to the sizes in ``positions.json`` and return the message numbers there, by kernel id.

    - The files of the ranks to ``keep`` stay as they are, because no worker has a journal for these ranks.
    - If there is no valid ``positions.json`` (e.g. an older version wrote the run), or a file is shorter than recorded
      (the machine crashed), the files are renamed to ``.old``. The journals then supply all content again.
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
            # If the volume does not allow this, later writes fail too, and the user gets a notice about those.
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
    """Truncate a file to a size. If no size is given or the file is not a regular one, rename it to ``.old``."""
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
