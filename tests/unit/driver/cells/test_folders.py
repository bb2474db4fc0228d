"""Tests for copies of folders, between this process and a fake rank that makes the calls of a real one."""

import json

import pytest
from farandole.driver.cells import folders
from farandole.driver.cells.folders import FolderCopy, own_name
from farandole.exceptions import RankError, TransferError, UsageError
from farandole.files import pieces
from farandole.files.pieces import PART
from farandole.ranks import control
from farandole.ranks.kernel.transfer import receive_buffer

FILE_CALLS = ("file_names", "file_contents", "differing_pieces", "read_pieces", "write_pieces", "finish_files")


class CutError(Exception):
    """Stands for a connection that breaks."""


class Rank:
    """A kernel and a group of one rank in this process. After ``calls`` calls, its connection breaks."""

    def __init__(self, calls=1000):
        self.kernels = [self]
        self.calls = calls
        self.pushed = []

    async def push(self, _target, data, blob):
        self.pushed.append(len(blob))
        receive_buffer().put(data["key"], blob)

    async def control(self, call, *, what, timeout, kernels):
        assert kernels == [self]
        self.calls -= 1
        if self.calls < 0:
            raise CutError
        try:
            return [json.loads(eval(call.expression))]
        except TransferError as exc:
            raise RankError(str(exc)) from exc


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """The home on the workers. A piece has eight bytes, a page two files."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    monkeypatch.setattr(folders, "PAGE_FILES", 2)
    monkeypatch.setattr(folders, "PAGE_PIECES", 2)
    monkeypatch.setattr(folders, "LISTED_FILES", 3)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FARANDOLE_RANK", "0")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for number in range(5):
        path = folder / f"class-{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(range(number * 5)))
    return folder


def texts(folder):
    return {name: (folder / name).read_bytes() for name, _ in pieces.names(folder)}


async def put(rank, source, target, said=None):
    copy = FolderCopy((said if said is not None else []).append)
    copied = await copy.put(rank, source, target)
    copy.show()
    return copied


async def get(rank, source, target):
    return await FolderCopy([].append).get(rank, source, target)


def test_the_calls_of_a_copy_are_those_of_ranks():
    assert all(hasattr(control, name) for name in FILE_CALLS)


async def test_a_folder_is_put_and_the_second_copy_sends_nothing(home, data):
    rank = Rank()
    copied = await put(rank, data, "sets/data")
    assert str(copied) == "5 files, 50 B: 5 files, 50 B sent"
    assert texts(home / "sets" / "data") == texts(data)
    assert max(rank.pushed) <= 8
    again = Rank()
    assert str(await put(again, data, "sets/data")) == "5 files, 50 B: already there"
    assert again.pushed == []


async def test_only_a_file_that_changed_is_put_again(home, data):
    await put(Rank(), data, "data")
    (home / "data" / "own.txt").write_text("stays")
    (data / "class-0" / "2.png").write_bytes(b"changed")
    copied = await put(Rank(), data, "data")
    assert (copied.sent_files, copied.sent) == (1, 7)
    assert texts(home / "data") == {**texts(data), "own.txt": b"stays"}


@pytest.mark.parametrize("calls", range(1, 12))
async def test_a_put_that_was_cut_continues(home, data, calls):
    first = Rank(calls)
    with pytest.raises(CutError):
        await put(first, data, "data")
    second = Rank()
    copied = await put(second, data, "data")
    assert texts(home / "data") == texts(data)
    assert copied.sent + sum(first.pushed) <= 50 + 8
    assert not list(home.rglob(f"*{PART}"))


async def test_a_folder_is_got_and_the_second_copy_sends_nothing(home, data, tmp_path):
    (home / "results").mkdir()
    await put(Rank(), data, "results")
    copied = await get(Rank(), "~/results", tmp_path / "here")
    assert (copied.files, copied.sent) == (5, 50)
    assert texts(tmp_path / "here") == texts(data)
    assert (await get(Rank(), "results", tmp_path / "here")).sent_files == 0


@pytest.mark.parametrize("calls", range(1, 9))
async def test_a_get_that_was_cut_continues(home, data, tmp_path, calls):
    await put(Rank(), data, "results")
    with pytest.raises(CutError):
        await get(Rank(calls), "results", tmp_path / "here")
    await get(Rank(), "results", tmp_path / "here")
    assert texts(tmp_path / "here") == texts(data)
    assert not list((tmp_path / "here").rglob(f"*{PART}"))


async def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(TransferError, match=r"the folder on this machine: 'none': No such file or directory\."):
        await put(Rank(), tmp_path / "none", "data")
    with pytest.raises(TransferError, match="there is no folder '.*none' on the workers"):
        await get(Rank(), "none", tmp_path)


async def test_a_cluster_cannot_write_outside_of_the_folder(home, data, tmp_path, monkeypatch):
    await put(Rank(), data, "results")
    listings = iter([[("../out", 1)], []])
    monkeypatch.setattr(control.folders, "names", lambda *_: next(listings))
    monkeypatch.setattr(control.folders, "contents", lambda *_: [[1, 0o777, [pieces.digest(b"x")]]])
    with pytest.raises(TransferError, match="is not below the folder"):
        await get(Rank(), "results", tmp_path / "here")
    assert not (tmp_path / "out").exists()


async def test_progress_is_shown(home, data, monkeypatch):
    monkeypatch.setattr(folders, "PROGRESS_SECONDS", 0.0)
    said = []
    await put(Rank(), data, "data", said)
    assert said == ["compared 30 B of 50 B, copied 30 B"]


async def test_a_file_that_changes_or_cannot_be_read_does_not_end_the_copy(home, data, monkeypatch):
    read = pieces.read

    def read_while_it_changes(folder, name, number):
        if name.endswith("3.png"):
            (folder / name).write_bytes(b"longer than before, by far")
        return read(folder, name, number)

    monkeypatch.setattr(pieces, "read", read_while_it_changes)
    with pytest.raises(
        TransferError, match=r"1 of 5 files could not be copied: 'class-1/3.png' \(it was damaged on"
    ) as caught:
        await put(Rank(), data, "data")
    assert str(caught.value).endswith("The others are complete; repeat the command to copy the rest.")
    assert sorted(texts(home / "data")) == sorted(set(texts(data)) - {"class-1/3.png"})
    monkeypatch.setattr(pieces, "read", read)
    assert (await put(Rank(), data, "data")).sent_files == 1
    assert texts(home / "data") == texts(data)


async def test_a_size_that_does_not_fit_the_digests_is_refused(home, data, tmp_path, monkeypatch):
    listings = iter([[("huge", 10**15)], []])
    monkeypatch.setattr(control.folders, "names", lambda *_: next(listings))
    monkeypatch.setattr(control.folders, "contents", lambda *_: [[10**15, 0o644, [pieces.digest(b"x")]]])
    monkeypatch.setattr(folders, "PAGE_PIECES", 10**15)
    with pytest.raises(TransferError, match="'huge' \\(it changed while it was copied"):
        await get(Rank(), "results", tmp_path / "here")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("name", ["", "..", "~", "~ada"])
def test_a_copy_without_a_name_of_its_own_needs_one(name):
    with pytest.raises(UsageError, match="name the one here with `--to FOLDER`"):
        own_name(name, "here")
