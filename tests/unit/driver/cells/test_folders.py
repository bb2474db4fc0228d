"""Tests for copies of folders, between this process and a fake rank that makes the calls of a real one."""

import errno
import json
import os
from types import SimpleNamespace

import pytest
from farandole.driver.cells import folder_ends, folders
from farandole.driver.cells.folders import FolderCopy, here, own_name
from farandole.driver.kernels.rank_calls import RankCall
from farandole.exceptions import DeadlineError, RankDiedError, RankError, TransferError, UsageError
from farandole.files import pieces
from farandole.files.pieces import PART
from farandole.ranks import control
from farandole.ranks.kernel.transfer import receive_buffer

FILE_CALLS = ("file_names", "file_contents", "differing_pieces", "read_pieces", "write_pieces", "finish_files")


class CutError(Exception):
    """Stands for a connection that breaks."""


class Rank:
    """A kernel and a group of one rank in this process. After ``calls`` calls, its connection breaks.

    ``lost`` has the numbers of pushes that are lost, and ``repeated`` the functions whose answers are lost once.
    """

    def __init__(self, calls=1000, lost=(), repeated=()):
        self.kernels = [self]
        self.worker = SimpleNamespace(name="c-w0")
        self.calls = calls
        self.lost = set(lost)
        self.repeated = set(repeated)
        self.pushed = []
        self.connected = True

    async def reachable(self):
        self.connected = True

    async def push(self, _target, data, blob):
        self.pushed.append(len(blob))
        if len(self.pushed) not in self.lost:
            receive_buffer().put(data["key"], blob)

    async def control(self, call, *, what, timeout, kernels, repeat=False):
        assert kernels == [self]
        self.calls -= 1
        if self.calls < 0:
            raise CutError
        if call.function in self.repeated:
            assert repeat
            self.repeated.remove(call.function)
            eval(call.expression)
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
    monkeypatch.setattr(folder_ends, "LISTED_FILES", 3)
    monkeypatch.setattr(folder_ends, "PUSH_BYTES", 5)
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
    return {name: (folder / name).read_bytes() for name, size in pieces.names(folder) if size is not None}


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
    assert max(rank.pushed) == 5
    again = Rank()
    assert str(await put(again, data, "sets/data")) == "5 files, 50 B: already there"
    assert again.pushed == []


async def test_only_a_file_that_changed_is_put_again(home, data):
    await put(Rank(), data, "data")
    (home / "data" / "own.txt").write_text("stays")
    (data / "class-0" / "2.png").write_bytes(b"changed")
    copied = await put(Rank(), data, "data")
    assert str(copied) == "5 files, 47 B: 1 file, 7 B sent"
    assert texts(home / "data") == {**texts(data), "own.txt": b"stays"}


@pytest.mark.parametrize("calls", range(1, 16))
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
    assert said == ["compared 50 B of 50 B, copied 50 B"]


async def test_progress_within_a_large_file_is_shown(home, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "PROGRESS_SECONDS", 0.0)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(bytes(40))
    said = []

    class Shown(Rank):
        async def control(self, call, **options):
            copy.show()
            return await super().control(call, **options)

    copy = FolderCopy(said.append)
    await copy.put(Shown(), tmp_path / "large", "data")
    assert said[0] == "compared 40 B of 40 B, copied 0 B"
    assert {"compared 40 B of 40 B, copied 8 B", "compared 40 B of 40 B, copied 16 B"} < set(said)


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


@pytest.mark.parametrize("function", FILE_CALLS)
async def test_a_call_whose_answer_is_lost_may_be_made_again(home, data, tmp_path, function):
    for number in range(5, 9):
        (data / f"{number}.png").write_bytes(b"more files than a page")
    await put(Rank(repeated=[function]), data, "data")
    await get(Rank(repeated=[function]), "data", tmp_path / "here")
    assert texts(tmp_path / "here") == texts(home / "data") == texts(data)


@pytest.mark.parametrize("lost", [[1], [2], [1, 2, 4]])
async def test_pieces_that_are_lost_with_the_connection_are_sent_again(home, data, lost):
    await put(Rank(lost=lost), data, "data")
    assert texts(home / "data") == texts(data)


@pytest.mark.parametrize("late", ["before the file has its name", "after the copy"])
async def test_pieces_that_arrive_after_they_were_sent_again_leave_nothing(home, data, late):
    class Slow(Rank):
        """What belongs to the first push arrives later."""

        def __init__(self):
            super().__init__()
            self.messages = []
            self.write = None

        async def push(self, target, sent, blob):
            if self.write is None:
                self.messages.append((sent["key"], blob))
            else:
                await super().push(target, sent, blob)

        async def control(self, call, **options):
            if call.function == "write_pieces" and self.write is None:
                self.write = call
            if call.function == "finish_files" and late == "before the file has its name":
                self.arrive()
            return await super().control(call, **options)

        def arrive(self):
            for message in self.messages:
                receive_buffer().put(*message)
            assert eval(self.write.expression) == "null"
            with pytest.raises(TransferError):
                receive_buffer().take(self.messages[0][0])

    rank = Slow()
    await put(rank, data, "data")
    if late == "after the copy":
        rank.arrive()
    assert texts(home / "data") == texts(data)
    assert not list(home.rglob(f"*{PART}"))


async def test_a_connection_that_always_breaks_ends_the_copy(home, data):
    with pytest.raises(TransferError, match="did not arrive at rank 0, because the connection broke 5 times. Repeat"):
        await put(Rank(lost=range(100)), data, "data")


async def test_the_time_without_a_network_does_not_count(home, data):
    class Away(Rank):
        late = 0

        async def control(self, call, **options):
            assert self.connected
            if call.function == "write_pieces" and self.late < 2:
                self.late += 1
                self.connected = False
                raise DeadlineError("no answer")
            return await super().control(call, **options)

    rank = Away()
    await put(rank, data, "data")
    assert rank.late == 2
    assert texts(home / "data") == texts(data)


@pytest.mark.parametrize("error", [DeadlineError, RankDiedError])
async def test_a_rank_that_does_not_answer_or_has_ended_ends_the_copy(home, data, error):
    class Silent(Rank):
        async def control(self, call, **options):
            raise error("rank 0")

    with pytest.raises(error):
        await put(Silent(), data, "data")


async def test_two_copies_of_one_folder_at_a_time_leave_only_whole_files(home, data):
    class Second(Rank):
        """While this rank receives its first pieces, another copy of the same folder ends."""

        async def push(self, *arguments):
            if not self.pushed:
                await put(Rank(), data, "data")
            await super().push(*arguments)

    await put(Second(), data, "data")
    assert texts(home / "data") == texts(data)
    await put(Rank(), data, "data")
    assert not list(home.rglob(f"*{PART}"))


async def test_a_file_of_which_another_copy_took_a_part_is_not_complete(home, tmp_path, monkeypatch):
    source = tmp_path / "large"
    source.mkdir()
    (source / "file").write_bytes(bytes(range(40)))

    class Disturbed(Rank):
        async def push(self, *arguments):
            if len(self.pushed) == 6:
                for part in home.rglob(f"*{PART}"):
                    part.unlink()
            await super().push(*arguments)

    with pytest.raises(TransferError, match="'file' \\(another copy wrote to it at the same time; repeat the copy"):
        await put(Disturbed(), source, "data")
    assert texts(home / "data") == {}
    await put(Rank(), source, "data")
    assert texts(home / "data") == texts(source)


async def test_a_full_disk_ends_the_copy_and_says_what_to_do(home, data, monkeypatch):
    def fail(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pieces, "write", fail)
    rank = Rank()
    with pytest.raises(TransferError, match=r"no space for more files in '.*data'.*Make room, and repeat the copy"):
        await put(rank, data, "data")
    assert sum(rank.pushed) <= 8


async def test_the_rest_of_a_file_that_cannot_be_written_is_not_sent(home, data, monkeypatch):
    def fail(*_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    (data / "large").write_bytes(bytes(800))
    monkeypatch.setattr(pieces, "write", fail)
    rank = Rank()
    with pytest.raises(TransferError, match=r"5 of 6 files could not be copied: .*Permission denied"):
        await put(rank, data, "data")
    assert sum(rank.pushed) < 80


async def test_links_and_special_files_are_counted(home, data):
    (data / "link").symlink_to("class-0")
    os.mkfifo(data / "pipe")
    assert str(await put(Rank(), data, "data")).endswith("50 B sent; links and special files left out: 2")
    assert not (home / "data" / "link").exists()


async def test_a_folder_without_files_is_named(home, tmp_path):
    (tmp_path / "empty").mkdir()
    assert str(await put(Rank(), tmp_path / "empty", "data")) == "the folder has no files"


@pytest.mark.parametrize(("answer", "unseen"), [(None, ""), ([0], "c-w1 do not see it"), (OSError, "")])
async def test_workers_that_do_not_see_the_copy_are_named(home, data, answer, unseen):
    class Two(Rank):
        """A second rank, whose machine may have another home."""

        def __init__(self):
            super().__init__()
            self.other = SimpleNamespace(worker=SimpleNamespace(name="c-w1"))
            self.kernels = [self, SimpleNamespace(worker=self.worker), self.other]

        async def control(self, call, **options):
            if options["kernels"] == [self]:
                return await super().control(call, **options)
            assert (options["kernels"], call.function) == ([self.other], "differing_pieces")
            if answer is OSError:
                raise RankError("another folder")
            return [[answer]]

    assert unseen in str(await put(Two(), data, "data"))


def test_a_folder_keeps_the_name_that_the_user_gave_it(data, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(data)
    assert here(tmp_path / "link").name == "link"
    monkeypatch.chdir(data)
    assert here(".") == data
    with pytest.raises(UsageError, match="'~nobody-here/x' is in the home of a user that this machine does not know"):
        here("~nobody-here/x")


def test_the_arguments_of_a_call_may_have_any_characters(home):
    call = RankCall("file_names", ("a'\udcff\n", "key", 0, 1))
    with pytest.raises(TransferError, match="there is no folder"):
        eval(call.expression)


@pytest.mark.parametrize("name", ["", "..", "~", "~ada"])
def test_a_copy_without_a_name_of_its_own_needs_one(name):
    with pytest.raises(UsageError, match="name the one here with `--to FOLDER`"):
        own_name(name, "here")
