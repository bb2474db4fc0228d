"""Reads the runs that W&B keeps in a folder in offline mode. Its package has a reader only inside `wandb-core`."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = b":W&B"
START = 7
BLOCK = 32768
CHUNK = struct.Struct("<IHB")
"""Checksum, length and kind of a chunk, as in the logs of LevelDB."""
WHOLE, LAST = 1, 4


def messages(data: bytes) -> Iterator[bytes]:
    """Return the messages in a file. A message is split into chunks that do not cross the borders of blocks."""
    assert data.startswith(HEADER)
    at, message = START, b""
    while at + CHUNK.size <= len(data):
        if BLOCK - at % BLOCK < CHUNK.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = CHUNK.unpack_from(data, at)
        at += CHUNK.size
        message += data[at : at + length]
        at += length
        if kind in {WHOLE, LAST}:
            yield message
            message = b""


def values(items: Iterable[Any]) -> dict[str, Any]:
    """Return the values of a configuration, a row of the history or a summary."""
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


@dataclass(frozen=True)
class OfflineRun:
    """A run in a folder ``offline-run-*``."""

    folder: Path

    @property
    def records(self) -> list[Any]:
        """All records, in order."""
        from wandb.proto.wandb_internal_pb2 import Record

        [file] = self.folder.glob("run-*.wandb")
        return [Record.FromString(message) for message in messages(file.read_bytes())]

    def of(self, kind: str) -> list[Any]:
        """Return the records of a kind, in order."""
        return [getattr(record, kind) for record in self.records if record.WhichOneof("record_type") == kind]

    @property
    def config(self) -> dict[str, Any]:
        updates = [self.of("run")[0].config.update, *(record.update for record in self.of("config"))]
        return {key: value for update in updates for key, value in values(update).items()}

    @property
    def history(self) -> list[dict[str, Any]]:
        return [values(row.item) for row in self.of("history")]

    @property
    def summary(self) -> dict[str, Any]:
        return {key: value for record in self.of("summary") for key, value in values(record.update).items()}

    @property
    def exit_code(self) -> int:
        [ended] = self.of("exit")
        return ended.exit_code

    def text(self, name: str) -> str:
        """Return the content of a file that was saved with the run."""
        return (self.folder / "files" / name).read_text()


def offline_runs(folder: Path) -> list[OfflineRun]:
    """Return the runs in the folder ``wandb`` in this folder."""
    return [OfflineRun(path) for path in sorted(folder.glob("wandb/offline-run-*"))]
