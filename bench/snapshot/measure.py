"""Measures snapshots of a home with many files: the first one, later ones after 1 % has changed, and a restore.

The repository is a folder on the same disk, so the times are those of restic and of this package, without the hub.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from farandole.snapshots.connection import Repository
from farandole.snapshots.snapshots import Snapshots

from bench.record import Record, median_of
from bench.site import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from farandole.snapshots.model import TakenSnapshot

FILES = 100_000
FILES_IN_FOLDER = 500
FILE_BYTES = 1_000
CHANGED_SHARE = 0.01
SEED = 24
MOST_SECONDS = 5.0
MOST_RESTORE_SECONDS = 3.0
PASSWORD = "bench"

T = TypeVar("T")


def measure(repeats: int, files: int = FILES) -> Iterator[Record]:
    """Yield the records of snapshots of a home with so many files."""
    with tempfile.TemporaryDirectory(prefix="farandole-snapshot-") as name:
        home, repository = Path(name, "home"), Path(name, "repository")
        with environment({"HOME": str(home), "RESTIC_PASSWORD": PASSWORD}):
            yield from _measure(home, repository, repeats, files)


def _measure(home: Path, repository: Path, repeats: int, files: int) -> Iterator[Record]:
    chance = random.Random(SEED)
    paths, changed = _create(home, chance, files), round(files * CHANGED_SHARE)
    subprocess.run(["restic", "init", "--quiet", "--repo", str(repository)], check=True)
    snapshots = Snapshots(home=home, connect=lambda: Repository(url=str(repository), password=PASSWORD))
    seconds, first = _timed(snapshots.take)
    yield Record(name="snapshot_first_s", value=seconds, unit="s", runs=(seconds,), note=_note(first))
    times, restores, added = [], [], 0
    for run in range(repeats):
        for path in chance.sample(paths, changed):
            path.write_bytes(chance.randbytes(FILE_BYTES))
        seconds, taken = _timed(snapshots.take)
        times.append(seconds)
        added = taken.added
        lost = chance.choice(paths)
        content = lost.read_bytes()
        lost.unlink()
        seconds, _ = _timed(lambda path=lost: snapshots.restore(path))  # type: ignore[misc]
        restores.append(seconds)
        if lost.read_bytes() != content:
            raise RuntimeError(f"run {run}: {lost} was restored with another content")
    note = f"after {changed:,} of {files:,} files have changed"
    yield median_of("snapshot_changed_s", times, "s", limit=f"<= {MOST_SECONDS:g}", note=note)
    yield median_of("snapshot_restore_s", restores, "s", limit=f"<= {MOST_RESTORE_SECONDS:g}", note="one deleted file")
    yield _megabytes("snapshot_added_mb", added, note)
    yield _megabytes("snapshot_repository_mb", _size(repository), f"{repeats + 1} snapshots of {_note(first)}")


def _create(home: Path, chance: random.Random, files: int) -> list[Path]:
    """Create the files of a home, with random content that restic cannot compress."""
    paths = []
    for number in range(files):
        folder = home / "data" / f"part-{number // FILES_IN_FOLDER:03}"
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / f"sample-{number:06}.bin")
        paths[-1].write_bytes(chance.randbytes(FILE_BYTES))
    return paths


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _note(taken: TakenSnapshot) -> str:
    return f"{taken.files:,} files with {taken.size / 1e6:.0f} MB"


def _megabytes(name: str, size: int, note: str) -> Record:
    return Record(name=name, value=size / 1e6, unit="MB", runs=(size / 1e6,), note=note)


def _size(folder: Path) -> int:
    return sum(os.lstat(Path(path, name)).st_size for path, _, names in os.walk(folder) for name in names)
