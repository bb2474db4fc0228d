"""Damaged files for a run folder: pipes, links, folders, huge files, invalid text and JSON that exhausts the parser."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GOOD = "20260101-000000-0000"
BAD = "20260101-000001-bad0"
RECORD: dict[str, Any] = {
    "id": BAD,
    "name": "strange",
    "status": "finished",
    "error": None,
    "started": 1767225600.0,
    "ended": 1767225610.0,
    "backend": "torch",
    "cluster": "c",
    "size": 2,
    "workers": ["c-w0", "c-w1"],
    "options": {},
    "sync": {"0": {"mode": "step", "waiting": 0.5, "bytes_per_step": 8, "staleness": 0}},
    "versions": {"torch": "2.13.0"},
    "git": None,
    "cwd": "/home",
    "driver": {},
    "results": {},
    "notices": [],
    "resumed_from": None,
    "notebook": "",
    "kernel": "",
    "cell": "",
}
REPORT = {"kind": "report", "rank": 0, "time": 1.0, "step": 1, "values": {"loss": 0.5}}
HUGE_BYTES = 3_000_000_000


def write_run(store: Path, run: str = GOOD, **changes: Any) -> Path:
    """Write a finished run with one report, a log and its code."""
    folder = store / run
    for part in ("metrics", "logs", "usage"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**RECORD, "id": run, "name": run, **changes}))
    (folder / "code.py").write_text("fd.report(loss=1)")
    (folder / "metrics" / "rank-0.jsonl").write_text(json.dumps(REPORT) + "\n")
    (folder / "logs" / "rank-0.log").write_text("hello\n")
    return folder


def pipe(path: Path) -> None:
    """Create a named pipe. Opening the pipe blocks."""
    os.mkfifo(path)


def loop(path: Path) -> None:
    """Create a symbolic link that points to itself."""
    path.symlink_to(path.name)


def outside(path: Path) -> None:
    """Create a symbolic link to a file outside the store."""
    path.symlink_to("/etc/passwd")


def huge(path: Path) -> None:
    """Create a sparse file of 3 GB."""
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


def folder(path: Path) -> None:
    """Create a folder in place of the file."""
    path.mkdir()


def binary(path: Path) -> None:
    """Write bytes that are not valid UTF-8."""
    path.write_bytes(bytes(range(256)) * 10)


def nested(path: Path) -> None:
    """Write JSON that is nested too deeply for Python's parser."""
    path.write_text("[" * 100_000 + "]" * 100_000)


def values(path: Path) -> None:
    """Write JSON that needs much more memory once it is parsed."""
    path.write_text("[" + "[]," * 8_000_000 + "[]]")


FILES: tuple[Callable[[Path], None], ...] = (pipe, loop, outside, huge, folder, binary, nested, values)


def replaced(make: Callable[[Path], None], path: Path) -> None:
    """Replace a file with a damaged one, which ``make`` creates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)


@contextmanager
def limited_memory(more: int = 1_000_000_000) -> Iterator[None]:
    """Limit the memory that this process can allocate, so that allocations beyond the limit raise MemoryError."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
