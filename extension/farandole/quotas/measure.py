"""Measures a home with the program ``du``, and stores the measurement in the home."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from farandole.quotas.home import MOST_PARTS, RECORD, Measurement
from farandole.runs.writer import write_atomically

DU = ("nice", "-n", "19", "du", "--block-size=1", "--null", "--one-file-system", "--max-depth=3")
MOST_SECONDS = 3600.0
BLOCK = 512
"""The unit of ``st_blocks`` in bytes, see stat(2)."""
MAIN_SHARE = 0.8
"""A folder inside of a large one is named in its place if it has this share of it."""


class MeasureError(OSError):
    """Raised when a home cannot be measured. The message contains the reason."""


def measure(home: Path, *, seconds: float = MOST_SECONDS) -> Measurement:
    """Measure a home, and store the measurement there for all servers of the user.

    This takes at most ``seconds``. Raises `MeasureError`.
    """
    begun = time.monotonic()
    sizes = _sizes(home, seconds)
    used, largest = sizes.pop(""), largest_parts(sizes | _files(home))
    found = Measurement(used=used, time=time.time(), seconds=time.monotonic() - begun, largest=largest)
    record = {"used": found.used, "time": found.time, "seconds": found.seconds, "largest": dict(found.largest)}
    # A full disk keeps the last record, and file systems without room answer for themselves.
    with suppress(OSError):
        write_atomically(home / RECORD, json.dumps(record).encode(), shared=True)
    return found


def largest_parts(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the paths that take most, given the sizes of all by their paths. None of them is inside another."""
    inside: dict[str, list[str]] = {}
    for path in sizes:
        inside.setdefault(os.path.dirname(path), []).append(path)  # noqa: PTH120 - of 100,000 paths
    top = sorted(inside.get("", []), key=lambda path: -sizes[path])[:MOST_PARTS]
    return tuple((path, sizes[path]) for path in (_main_part(path, sizes, inside) for path in top))


def _main_part(path: str, sizes: Mapping[str, int], inside: Mapping[str, list[str]]) -> str:
    """Return the deepest folder that has most of a folder, for example ``.local/share/Trash`` for ``.local``."""
    while part := max(inside.get(path, []), key=lambda each: sizes[each], default=""):
        if sizes[part] < MAIN_SHARE * sizes[path]:
            break
        path = part
    return path


def _sizes(home: Path, seconds: float) -> dict[str, int]:
    """Return the bytes of the home, whose path is the empty string, and of folders inside of it."""
    try:
        # Folders that cannot be read are missing from the sum, and a file that disappears meanwhile is no error.
        done = subprocess.run(
            [*DU, "--", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise MeasureError(f"measuring it took more than {seconds:.0f} s") from exc
    except OSError as exc:
        raise MeasureError(f"the program du cannot be run ({exc.strerror})") from exc
    lines = [line.partition(b"\t") for line in done.stdout.split(b"\0") if line]
    found = {_relative(path, home): int(size) for size, _, path in lines}
    if "" not in found:
        raise MeasureError(f"the program du ended with code {done.returncode}")
    return found


def _files(home: Path) -> dict[str, int]:
    """Return the bytes of the files directly in the home. Of other files, only their folders are named."""
    found = {}
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_blocks * BLOCK
    return found


def _relative(path: bytes, home: Path) -> str:
    return os.fsdecode(path).removeprefix(str(home)).strip("/")
