"""Tests for the names, tags and notes that users give to runs, and for finding runs by them."""

import errno
import json
import threading

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.listing import RunList
from farandole.protocol import Status
from farandole.runs import notes
from farandole.runs.notes import RunNotes, annotated, change_notes, read_notes
from farandole.runs.store import RunStore

from tests.strange import BAD, FILES, GOOD, replaced, write_run


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def test_an_edit_changes_only_what_it_contains(tmp_path):
    assert read_notes(tmp_path) == RunNotes()
    change_notes(tmp_path, {"name": " best ", "tags": ["a", " b ", "a", " "], "notes": None})
    change_notes(tmp_path, {"notes": "two\nlines"})
    assert read_notes(tmp_path) == RunNotes(name="best", tags=("a", "b"), notes="two\nlines")
    assert json.loads((tmp_path / "notes.json").read_text()) == {
        "name": "best",
        "tags": ["a", "b"],
        "notes": "two\nlines",
    }
    change_notes(tmp_path, {"name": "", "tags": []})
    assert read_notes(tmp_path) == RunNotes(notes="two\nlines")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"name": "a" * 201}, "the name may have at most 200 characters, not 201; shorten it"),
        ({"name": "a\nb"}, "the name must not contain control characters or line breaks; remove them"),
        ({"name": "\ud800"}, "the name must not contain control characters"),
        ({"name": 5}, "'name' in the notes of a run must be of type text, not 5"),
        ({"tags": ["a" * 10_000]}, "a tag may have at most 50 characters, not 10,000; shorten it"),
        ({"tags": ["a\0"]}, "a tag must not contain control characters"),
        ({"tags": [str(number) for number in range(21)]}, "a run may have at most 20 tags, not 21; remove some"),
        ({"tags": "a"}, "'tags' in the notes of a run must be of type texts, not 'a'"),
        ({"tags": [1]}, "must be of type texts"),
        ({"notes": "a" * 10_001}, "the notes may have at most 10,000 characters, not 10,001; shorten it"),
        ({"notes": []}, "must be of type text"),
        ({"status": "finished"}, "a change of a run has only name, tags and notes, not 'status'"),
    ],
)
def test_an_invalid_edit_is_refused_with_a_remedy_and_changes_nothing(tmp_path, edit, message):
    change_notes(tmp_path, {"name": "before"})
    with pytest.raises(UsageError, match=message):
        change_notes(tmp_path, edit)
    assert read_notes(tmp_path) == RunNotes(name="before")


@pytest.mark.parametrize("make", FILES)
def test_damaged_notes_are_ignored_and_kept_beside_the_new_ones(store, make):
    folder = write_run(store.folder)
    replaced(make, folder / "notes.json")
    before = (folder / "notes.json").lstat().st_ino
    [info] = store.list()
    assert (info.name, info.tags, info.notes) == (GOOD, (), "")
    change_notes(folder, {"tags": ["new"]})
    assert annotated(info).tags == ("new",)
    assert (folder / "notes.json.old").lstat().st_ino == before


def test_two_servers_that_change_the_notes_at_the_same_time_lose_nothing(tmp_path):
    """Without the lock, both read the same notes, and the second one writes them without the change of the first."""
    other = threading.Thread(target=change_notes, args=[tmp_path, {"tags": ["other"]}], name="other server")

    def check(_before):
        other.start()
        other.join(0.2)

    change_notes(tmp_path, {"name": "own"}, check)
    other.join(20)
    assert read_notes(tmp_path) == RunNotes(name="own", tags=("other",))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]


def test_on_a_volume_without_locks_the_last_server_determines_the_notes(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    def other_server(_descriptor):
        monkeypatch.setattr("os.fsync", lambda _descriptor: None)
        change_notes(tmp_path, {"name": "other"})

    monkeypatch.setattr("fcntl.flock", no_locks)
    monkeypatch.setattr("os.fsync", other_server)
    change_notes(tmp_path, {"name": "own"})
    assert read_notes(tmp_path) == RunNotes(name="own")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]


@pytest.mark.parametrize("edit", [{}, {"name": None, "tags": None, "notes": None}])
def test_an_edit_without_values_moves_no_damaged_notes(tmp_path, edit):
    (tmp_path / "notes.json").write_text("{")
    assert change_notes(tmp_path, edit) == RunNotes()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"notes.json": "{"}


def test_a_refused_change_writes_nothing(tmp_path):
    def refuse(before):
        raise UsageError(f"not instead of {before.name}")

    change_notes(tmp_path, {"name": "before"})
    with pytest.raises(UsageError, match="not instead of before"):
        change_notes(tmp_path, {"name": "after"}, refuse)
    assert read_notes(tmp_path) == RunNotes(name="before")


def test_a_link_in_place_of_the_notes_is_not_followed(store, tmp_path):
    folder = write_run(store.folder)
    target = tmp_path / "target.json"
    target.write_text('{"name": "from outside", "tags": [], "notes": ""}')
    (folder / "notes.json").symlink_to(target)
    assert store.list()[0].name == GOOD
    change_notes(folder, {"name": "own"})
    assert "from outside" in target.read_text()
    assert store.list()[0].name == "own"


@pytest.mark.parametrize("text", ["{}", '{"name": 5}', '{"tags": [1]}', '{"name": "a\\u0000"}', '{"more": 1}'])
def test_notes_of_wrong_types_hide_no_run(store, text):
    (write_run(store.folder) / "notes.json").write_text(text)
    assert [info.name for info in store.list()] == [GOOD]


def test_a_run_is_found_by_its_new_and_by_its_original_name(store):
    folder = write_run(store.folder, GOOD, name="digits")
    write_run(store.folder, BAD, name="other", started=1.0)
    change_notes(folder, {"name": "best", "tags": ["paper"], "notes": "lr was right"})
    for key in (GOOD, "best", "digits"):
        found = store.find(key)
        assert (found.id, found.name, found.original_name) == (GOOD, "best", "digits")
        assert (found.tags, found.notes) == (("paper",), "lr was right")
    assert store.load("best").info.name == "best"
    assert "best" in repr(RunList(store.list()))
    change_notes(store.folder / BAD, {"name": "digits"})
    assert store.find("digits").id == BAD
    change_notes(folder, {"name": ""})
    assert store.find(GOOD).name == "digits"


def test_notes_can_be_changed_during_the_run_and_are_not_in_run_json(store):
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"], name="digits")
    change_notes(run.folder, {"name": "best", "tags": ["a"]})
    run.notice("careful")
    run.finish(Status.FINISHED)
    [info] = store.list()
    assert (info.name, info.tags, info.status) == ("best", ("a",), Status.FINISHED)
    stored = json.loads((run.folder / "run.json").read_text())
    assert stored["name"] == "digits"
    assert not {"tags", "notes", "original_name"} & stored.keys()
    resumed = store.resume(stored, "")
    resumed.finish(Status.FINISHED)
    assert json.loads((run.folder / "run.json").read_text())["name"] == "digits"
    assert store.list()[0].name == "best"


def test_notes_that_cannot_be_read_are_not_overwritten(tmp_path, monkeypatch):
    change_notes(tmp_path, {"notes": "long work"})

    def fails(_folder):
        raise PermissionError(13, "Permission denied", "notes.json")

    monkeypatch.setattr(notes, "read_notes", fails)
    with pytest.raises(PermissionError):
        change_notes(tmp_path, {"name": "new"})
    monkeypatch.undo()
    assert read_notes(tmp_path) == RunNotes(notes="long work")
