"""Tests for `%snapshot` in a real IPython shell. `tests/unit/snapshots` has those of restic."""

from __future__ import annotations

from pathlib import Path

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.snapshots.magics import MOST_CHANGES, SnapshotMagics
from farandole.snapshots.model import Change, Snapshot, TakenSnapshot, Version
from IPython.core.interactiveshell import InteractiveShell

FIRST = Snapshot(id="a1" * 32, time=1_600_000_000.0, message="before\ncleaning")
SECOND = Snapshot(id="b2" * 32, time=1_600_003_600.0)


class FakeSnapshots:
    """The methods of `Snapshots` that the magic calls, without restic and a hub."""

    def __init__(self):
        self.calls = []
        self.unread = ()
        self.changes = [Change(kind="+", path="new\nline")]

    def take(self, message):
        self.calls.append(message)
        numbers = {"files": 12_345, "size": 2**30, "added": 2**20, "unread": self.unread}
        return TakenSnapshot(**{**vars(FIRST), "message": message}, **numbers, left_out=("~/.cache", "*.tmp"))

    def list(self, path=None):
        self.calls.append(path)
        if path is None:
            return [FIRST, SECOND]
        return [Version(**vars(FIRST), kind="file", size=2048, modified=1_500_000_000.0)] if path == "data" else []

    def diff(self, *times):
        self.calls.append(times)
        return self.changes

    def restore(self, path, **options):
        self.calls.append((path, options))
        return Path("/home/ada") / path


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell()
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def fake(shell, set_zone):
    set_zone("UTC")
    fake = FakeSnapshots()
    magics = SnapshotMagics(shell)
    magics.snapshots = lambda: fake
    shell.register_magics(magics)
    return fake


@pytest.fixture
def snapshot(shell, fake):
    """Run a line of `%snapshot`."""
    return lambda line: shell.run_line_magic("snapshot", line)


def test_take_says_what_is_in_and_what_is_left_out(snapshot, fake, capsys):
    snapshot('take "before cleaning"')
    assert fake.calls == ["before cleaning"]
    assert capsys.readouterr().out.splitlines() == [
        "snapshot a1a1a1a1: 12,345 files with 1.0 GiB; new: 1 MiB",
        "left out: ~/.cache, *.tmp (~/.config/farandole/snapshots.toml changes this)",
    ]


def test_a_message_of_spaces_is_none(snapshot, fake):
    snapshot('take " "')
    assert fake.calls == [""]


def test_take_names_what_could_not_be_read(snapshot, fake, capsys):
    fake.unread = tuple(f"private/{number}\n" for number in range(12))
    snapshot("take")
    [*_, last] = capsys.readouterr().out.splitlines()
    assert last.startswith("not in the snapshot, because they could not be read: private/0?, private/1?")
    assert last.endswith("private/9? and 2 more")


def test_list_shows_the_newest_first(snapshot):
    [head, *rows] = repr(snapshot("list")).splitlines()
    assert head.split() == ["id", "taken", "message"]
    assert rows == [
        "b2b2b2b2  2020-09-13 13:26:40 UTC  -",
        "a1a1a1a1  2020-09-13 12:26:40 UTC  before?cleaning",
    ]


def test_list_shows_a_path_over_time(snapshot, fake):
    [_, row] = repr(snapshot("list data")).splitlines()
    assert row.endswith("file  2 KiB  2017-07-14 02:40:00 UTC")
    assert repr(snapshot("list nope")) == "no snapshot has nope"
    assert fake.calls == ["data", "nope"]


def test_diff_shows_the_changes_up_to_a_limit(snapshot, fake):
    assert repr(snapshot("diff 14:05 a1a1a1a1")).splitlines()[1] == "+  new?line"
    fake.changes = [Change(kind="+", path="x")] * (MOST_CHANGES + 1_000)
    assert "and 1,000 more; `fd.Snapshots().diff()` returns all" in repr(snapshot("diff"))
    assert fake.calls == [("14:05", "a1a1a1a1"), ()]


def test_restore_passes_the_options(snapshot, fake, capsys):
    snapshot('restore "my data"')
    snapshot("restore data --at 14:05 --to old --keep-both")
    assert fake.calls == [
        ("my data", {"to": None, "keep_both": False}),
        ("data", {"at": "14:05", "to": "old", "keep_both": True}),
    ]
    assert capsys.readouterr().out.splitlines() == ["restored: /home/ada/my data", "restored: /home/ada/data"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the action is missing; use one of take, list, diff, restore"),
        ("tak", r"has no action 'tak'; .*Did you mean 'take'\?"),
        ("restore", "needs a path, such as"),
        ("restore a b", "takes at most 1 argument, and not 'a b'; put quotes"),
        ("diff 1 2 3", "takes at most 2 arguments"),
        ("list --at 14:05", "`%snapshot list` has no option --at; it has none"),
        ("take --to x", "`%snapshot take` has no option --to"),
        ("restore data --att 14:05", r"Did you mean '--at'\?"),
    ],
)
def test_a_line_that_is_not_valid_is_refused(snapshot, fake, line, message):
    with pytest.raises(UsageError, match=message):
        snapshot(line)
    assert fake.calls == []


def test_each_action_explains_itself(snapshot, capsys):
    snapshot("restore --help")
    out = capsys.readouterr().out
    assert out.startswith("%snapshot restore: Restore a file or a folder")
    assert "--keep-both" in out
