"""An elastic run told again from its beginning: what its files hold already is passed over.

Ranks change their places in such a run, so a rank's file holds what several kernels said. It is compared line by line.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from farandole.protocol import Kind
from farandole.runs.run import Run
from farandole.runs.writer import strict_json

FILES = {Kind.REPORT: "metrics/rank-{}.jsonl", Kind.USAGE: "usage/rank-{}.jsonl"}
LOG = "logs/rank-{}.log"


class Replay:
    """Tells a run what it does not know yet, until `end`; then all."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._known: dict[str, Counter[str]] = {}
        self._begun: dict[int, str] = {}
        """Of the logs, the last line of each rank, which has not ended."""
        self._ended = False

    def add_record(self, rank: int, record: dict[str, Any]) -> None:
        """Take in one rank message."""
        if not self._ended and self._is_known(rank, record):
            return
        self.run.add_record(rank, record)

    def add_log(self, rank: int, text: str) -> None:
        """Take in output of a rank."""
        if self._ended:
            self.run.add_log(rank, text)
            return
        *lines, self._begun[rank] = (self._begun.get(rank, "") + text).split("\n")
        if news := "".join(f"{line}\n" for line in lines if not self._find(LOG.format(rank), line)):
            self.run.add_log(rank, news)

    def end(self) -> None:
        """All is told that was there before."""
        self._ended = True
        for rank, line in self._begun.items():
            self.run.add_log(rank, line)
        self._known.clear()

    def _is_known(self, rank: int, record: dict[str, Any]) -> bool:
        if record.get("kind") == Kind.NOTICE:
            return record["text"] in self.run.notices
        name = FILES.get(record.get("kind", ""))
        return name is not None and self._find(name.format(rank), strict_json(record))

    def _find(self, name: str, line: str) -> bool:
        if name not in self._known:
            self._known[name] = Counter(_lines(self.run.folder / name))
        count = self._known[name][line]
        self._known[name][line] = max(count - 1, 0)
        return count > 0


def trim(folder: Path) -> None:
    """Cut lines off the ends of a run's files that a killed driver has not ended: they are told again."""
    for path in (*folder.glob("metrics/*"), *folder.glob("usage/*"), *folder.glob("logs/*")):
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
