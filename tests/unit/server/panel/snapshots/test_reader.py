"""Tests for what is read only once, and for what is kept in memory."""

from __future__ import annotations

import io
from pathlib import PurePath
from urllib.error import HTTPError

import pytest
from farandole.exceptions import SnapshotError
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.snapshots import reader
from farandole.server.panel.snapshots.reader import SnapshotReader
from farandole.snapshots.contents import ChangeCount, Entry, SnapshotContents
from farandole.snapshots.model import Snapshot

NEW, OLD = Snapshot(id="b" * 64, time=2.0), Snapshot(id="a" * 64, time=1.0)


class Counted(SnapshotContents):
    """Snapshots in memory, which count what is read of them. A folder has as many files as its name says."""

    def __init__(self, home):
        super().__init__(home=home)
        self.read = []
        self.error = None

    def list(self, path=None):
        self.read.append("list")
        if self.error:
            raise SnapshotError("no snapshots") from self.error
        return [OLD, NEW]

    def folder(self, snapshot, path):
        self.read.append(str(path))
        return [Entry(str(number), "file", 0, 0.0) for number in range(int(str(path)))]

    def changes(self, older, newer):
        self.read.append("changes")
        return ChangeCount(files=1, added=2)


@pytest.fixture
def counted(tmp_path):
    return Counted(tmp_path)


async def test_changes_and_folders_are_read_once(counted):
    ours = SnapshotReader(counted)
    assert [await ours.changes(NEW.id) for _ in range(3)] == [(1, 2)] * 3
    assert await ours.changes(OLD.id) is None
    assert len(await ours.folder(NEW, PurePath("5"))) == len(await ours.folder(NEW, PurePath("5"))) == 5
    assert counted.read == ["list", "changes", "5"]


async def test_the_folders_in_memory_are_limited_and_the_last_one_is_kept(counted, monkeypatch):
    monkeypatch.setattr(reader, "MOST_ENTRIES", 100)
    ours = SnapshotReader(counted)
    for name in ("40", "50", "40", "30", "40", "50", "500", "500"):
        await ours.folder(NEW, PurePath(name))
    # The folder that was not used for the longest time is read again.
    assert counted.read == ["40", "50", "30", "50", "500"]


async def test_a_snapshot_that_is_not_in_the_list_is_looked_for_once(counted):
    ours = SnapshotReader(counted)
    assert await ours.find(OLD.id) == OLD
    with pytest.raises(RefusedError, match="load the list again"):
        await ours.find("c" * 64)
    assert counted.read == ["list", "list"]


@pytest.mark.parametrize(("status", "off"), [(404, True), (302, True), (403, False), (401, False), (502, False)])
async def test_a_hub_without_snapshots_is_told_apart_from_errors(counted, status, off):
    counted.error = HTTPError("http://hub/", status, "", {}, io.BytesIO())
    with pytest.raises(RefusedError if off else SnapshotError, match="no snapshots"):
        await SnapshotReader(counted).refresh()
