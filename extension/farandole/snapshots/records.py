"""Reads what restic prints about snapshots and the files in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from farandole.exceptions import SnapshotError
from farandole.snapshots.model import Snapshot, Version, parse_snapshot, seconds
from farandole.snapshots.restic import HOST, Restic

MATCHES = b'{"matches":['
"""The beginning of a snapshot in the output of ``restic find``. In names of files, the quotes would be escaped."""
UNREADABLE = re.compile(rb"\n \.\.\. which belongs to snapshot ([0-9a-f]{8})")
"""What ``restic find`` prints about a damaged folder. In names of files, the line break would be escaped."""
CHUNK_BYTES = 2**20


def all_snapshots(restic: Restic) -> list[Snapshot]:
    """Return all snapshots, oldest first."""
    [found] = restic.records("snapshots", "--no-lock", "--host", HOST)
    return sorted(map(parse_snapshot, found or ()), key=lambda one: one.time)


def summary(stdout: IO[bytes]) -> dict[str, Any]:
    """Return the summary of ``restic backup``, or an empty one if it failed."""
    records = [json.loads(line) for line in stdout if b'"message_type":"summary"' in line]
    return records[-1] if records else {}


def unread(problems: Sequence[str], home: Path) -> tuple[str, ...]:
    """Return the files and folders of the home that ``restic backup`` could not read."""
    records = [json.loads(line) for line in problems if line.startswith("{")]
    names = [one["item"].removeprefix(f"{home}/") for one in records if one.get("message_type") == "error"]
    return tuple(dict.fromkeys(names))


def versions(restic: Restic, snapshots: Sequence[Snapshot], pattern: str) -> list[Version]:
    """Return those of the snapshots that have the path of a pattern."""
    with restic.running("find", "--no-lock", "--host", HOST, "--", pattern) as output:
        nodes = dict(first_matches(output.stdout))
    return [_version(snapshot, nodes[snapshot.id]) for snapshot in snapshots if snapshot.id in nodes]


def size_of(restic: Restic, snapshot: Snapshot, inside: str) -> int:
    """Return how many bytes the files at a path of a snapshot have."""
    with restic.running("ls", "--no-lock", "--recursive", "--", snapshot.id, inside) as output:
        return sum(json.loads(line).get("size", 0) for line in output.stdout)


def _version(snapshot: Snapshot, node: dict[str, Any]) -> Version:
    return Version(
        **vars(snapshot), kind=node["type"], size=node.get("size", 0), modified=seconds(node.get("mtime", ""))
    )


def first_matches(stdout: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id of each snapshot in the output of ``restic find``, with its first match, which is the path itself.

    The other matches are all files below the path. There may be millions, so they are neither parsed nor kept. Raises
    `SnapshotError` if a snapshot is damaged there, because restic then goes on without it.
    """
    pieces, decoder = _pieces(stdout), json.JSONDecoder()
    next(pieces)
    for piece in pieces:
        text = piece.decode()
        node, _ = decoder.raw_decode(text)
        yield text.rpartition('"snapshot":"')[2].partition('"')[0], node


def _pieces(stdout: IO[bytes]) -> Iterator[bytes]:
    """Yield what is before, between and after the beginnings of snapshots."""
    waiting = b""
    while chunk := stdout.read(CHUNK_BYTES):
        text = waiting + chunk
        if damaged := UNREADABLE.search(text):
            raise SnapshotError(
                f"The snapshot {damaged[1].decode()} is damaged, so the versions are not known. Restore from another "
                "one with `--at`, and tell the hub's administrator, who can repair the repository."
            )
        *complete, waiting = text.split(MATCHES)
        yield from complete
        if len(waiting) > 3 * CHUNK_BYTES:
            # The first match is at the beginning, and the id of the snapshot at the end.
            waiting = waiting[:CHUNK_BYTES] + waiting[-CHUNK_BYTES:]
    yield waiting
