"""Tests for reading what restic prints."""

from __future__ import annotations

import io
import json

from farandole.snapshots import records
from farandole.snapshots.records import CHUNK_BYTES, first_matches, unread

TRICKY = 'a{"matches":[{"path":"b"}],"snapshot":"c'
"""The name of a file that looks like the beginning of a snapshot."""


def test_only_the_first_match_of_each_snapshot_is_read():
    below = [{"path": f"/{TRICKY}/{number}", "size": number} for number in range(30_000)]
    found = [
        {"matches": [{"path": f"/{TRICKY}", "type": "dir"}, *below], "hits": 30_001, "snapshot": identity * 64}
        for identity in "abc"
    ]
    printed = json.dumps(found, separators=(",", ":")).encode()
    assert len(printed) > 3 * CHUNK_BYTES
    nodes = dict(first_matches(io.BytesIO(printed)))
    assert nodes == {identity * 64: {"path": f"/{TRICKY}", "type": "dir"} for identity in "abc"}


def test_the_files_below_a_folder_are_not_kept(monkeypatch):
    monkeypatch.setattr(records, "CHUNK_BYTES", 1000)
    below = b"".join(b',{"path":"/data/%d"}' % number for number in range(10_000))
    printed = b'[{"matches":[{"path":"/data"}' + below + b'],"hits":10001,"snapshot":"' + 64 * b"a" + b'"}]\n'
    pieces = list(records._pieces(io.BytesIO(printed)))
    assert max(map(len, pieces)) < 5 * 1000
    assert dict(first_matches(io.BytesIO(printed))) == {64 * "a": {"path": "/data"}}


def test_without_matches_nothing_is_read():
    assert dict(first_matches(io.BytesIO(b"[]\n"))) == {}


def test_files_that_cannot_be_read_are_named(tmp_path):
    lines = [
        '{"message_type":"error","error":{},"during":"scan","item":"dark"}',
        f'{{"message_type":"error","error":{{}},"during":"archival","item":"{tmp_path}/dark"}}',
        f'{{"message_type":"error","error":{{}},"during":"archival","item":"{tmp_path}/hidden"}}',
        "Warning: at least one source file could not be read",
    ]
    assert unread(lines, tmp_path) == ("dark", "hidden")
