"""Reads ``positions.json``, which lets another driver continue a run's files without a gap.

During a run, a worker keeps a journal for each of its kernels. The journal contains the kernel's messages, which are
numbered from 1. ``positions.json`` contains

- ``kernels``: for each kernel id, the number of the last message whose content is in the files;
- ``sizes``: the sizes in bytes of the files with exactly these messages, by file name.

A driver that takes over the run truncates the files to these sizes and skips the messages up to these numbers. Any data
beyond these sizes was written just before the earlier driver was killed, and is read from the journals again.
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
"""The id of the kernel that sent a message, and the number of the message in the journal of that kernel."""

FOLDERS = {"metrics": ".jsonl", "usage": ".jsonl", "logs": ".log", "times": ".jsonl"}


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
    """Truncate a run's files to the sizes in ``positions.json`` and return the message numbers in it, by kernel id.

    - The files of the ranks in ``keep`` are not changed, because no worker has a journal for these ranks.
    - If there is no valid ``positions.json`` (for example, because an older version wrote the run), or a file is
      shorter than recorded (because the machine crashed), the files are renamed to ``.old``. All content is then read
      from the journals again.
    """
    found = _read(folder)
    if found is not None and any(_size(folder, name) < size for name, size in found["sizes"].items()):
        found = None
    if found is None:
        # The old positions must not be applied to the files that are about to be written.
        with suppress(OSError):
            (folder / POSITIONS).unlink(missing_ok=True)
    for part, suffix in FOLDERS.items():
        for rank, name in rank_files(folder, part, suffix):
            # Errors are ignored here, because later writes would also fail, and the user then gets a notice.
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
    """Truncate a file to ``size`` bytes if it is longer.

    If ``size`` is None, the file is not regular, or its path contains a symbolic link, rename it to ``.old`` instead.
    """
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
