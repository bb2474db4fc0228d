"""Tests for the pieces in which files are copied."""

import errno
import os
from pathlib import Path

import pytest
from farandole.exceptions import TransferError
from farandole.files import pieces
from farandole.files.pieces import (
    PART,
    check_target,
    clean,
    content,
    count,
    differing,
    digest,
    finish,
    names,
    or_reason,
    part_of,
    read,
    write,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "long").write_bytes(b"0123456789")
    (folder / "a").write_bytes(b"")
    return folder


def copy(source: Path, target: Path, name: str) -> int:
    """Copy a file, and return the number of pieces that had to be written."""
    found = content(source, name)
    part = part_of(name, found.digests)
    if differing(target, name, 0, found.digests, found.size) is None:
        return 0
    numbers = differing(target, part, 0, found.digests) or []
    for number in numbers:
        write(target, part, number, read(source, name, number), found.digests[number], mode=found.mode)
    finish(target, part, name, found.size, found.mode)
    return len(numbers)


def test_files_are_listed_in_order_without_unfinished_copies(source: Path) -> None:
    (source / f"c{PART}").write_bytes(b"x")
    assert list(names(source)) == [("a", 0), ("b/long", 10)]


def test_links_and_special_files_are_listed_without_a_size(source: Path) -> None:
    (source / "link").symlink_to("a")
    (source / "folder").symlink_to("b")
    os.mkfifo(source / "pipe")
    assert list(names(source)) == [("a", 0), ("folder", None), ("link", None), ("pipe", None), ("b/long", 10)]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(names(tmp_path / "none"))


def test_a_file_that_goes_while_the_folder_is_listed_is_left_out(source: Path) -> None:
    listed = names(source)
    next(listed)
    (source / "b" / "long").unlink()
    assert list(listed) == []


def test_a_file_is_copied_in_pieces(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert [count(size) for size in (0, 1, 4, 5, 10)] == [0, 1, 1, 2, 3]
    assert copy(source, target, "b/long") == 3
    assert copy(source, target, "a") == 0
    assert {name: (target / name).read_bytes() for name, _ in names(target)} == {"a": b"", "b/long": b"0123456789"}
    found = content(source, "b/long")
    assert differing(target, "b/long", 0, found.digests, found.size) is None
    assert differing(target, "b/long", 0, found.digests, 9) == [0, 1, 2]


def test_pieces_from_a_number_on_are_compared(source: Path) -> None:
    found = content(source, "b/long", 1, 1)
    assert (found.size, found.digests) == (10, [digest(b"4567")])
    assert differing(source, "b/long", 1, [digest(b"4567")], 10) is None
    assert differing(source, "b/long", 1, [digest(b"4567"), "other"], 10) == [2]


def test_a_copy_that_was_cut_continues(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    wanted = content(source, "b/long").digests
    write(target, part_of("b/long", wanted), 1, b"4567", wanted[1])
    assert not (target / "b/long").exists()
    assert copy(source, target, "b/long") == 2
    assert (target / "b/long").read_bytes() == b"0123456789"


def test_a_file_that_changed_is_replaced_only_when_the_new_one_is_complete(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copy(source, target, "b/long")
    (source / "b/long").write_bytes(b"abcdef")
    wanted = content(source, "b/long").digests
    part = part_of("b/long", wanted)
    write(target, part, 0, b"abcd", wanted[0])
    assert (target / "b/long").read_bytes() == b"0123456789"
    write(target, part, 1, b"ef", wanted[1])
    finish(target, part, "b/long", 6)
    assert (target / "b/long").read_bytes() == b"abcdef"


def test_copies_of_two_contents_do_not_disturb_each_other_and_leave_nothing(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first, second = [digest(b"1111"), digest(b"22")], [digest(b"3333")]
    assert part_of("b/long", first) != part_of("b/long", second)
    write(target, part_of("b/long", first), 0, b"1111", first[0])
    write(target, part_of("b/long", second), 0, b"3333", second[0])
    finish(target, part_of("b/long", second), "b/long", 4)
    assert (target / "b/long").read_bytes() == b"3333"
    write(target, other := part_of("b/other", first), 0, b"1111", first[0])
    clean(target, ["b/long"])
    assert sorted(path.name for path in (target / "b").iterdir()) == sorted(["long", Path(other).name])


def test_a_copy_that_another_one_has_finished_or_removed_is_not_given_the_name(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    wanted = content(source, "b/long").digests
    part = part_of("b/long", wanted)
    with pytest.raises(ValueError, match="another copy wrote to it at the same time"):
        finish(target, part, "b/long", 10)
    write(target, part, 1, b"4567", wanted[1])
    with pytest.raises(ValueError, match="is not the file that was received"):
        finish(target, part, "b/long", 10)
    assert not (target / "b/long").exists()


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_target(tmp_path / "new" / "folder", "here")
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("nowhere")
    for name in ("file", "broken"):
        with pytest.raises(TransferError, match=f"'.*/{name}' here is not a folder"):
            check_target(tmp_path / name / "folder", "here")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(TransferError, match=f"the folder '{tmp_path}' here cannot be written; name another one with"):
        check_target(tmp_path / "new", "here")


def test_only_a_full_disk_ends_a_copy(tmp_path: Path) -> None:
    def fail(_folder: Path, number: int) -> None:
        raise OSError(number, os.strerror(number))

    assert or_reason(tmp_path, fail, errno.EIO) == f"[Errno {errno.EIO}] Input/output error"
    with pytest.raises(TransferError, match=r"no space for more files in .*\(No space left on device\)\. Make room"):
        or_reason(tmp_path, fail, errno.ENOSPC)


def test_scripts_stay_executable_and_private_files_private(source: Path, tmp_path: Path) -> None:
    (source / "b" / "long").chmod(0o750)
    (source / "a").chmod(0o600)
    for name in ("a", "b/long"):
        copy(source, tmp_path / "target", name)
    assert (tmp_path / "target" / "b/long").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "target" / "a").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["漢" * 84, "\udcff", "a\nb", "*?[a]", "-rf", "b\\c"])
def test_the_longest_and_oddest_names_are_copied(source: Path, tmp_path: Path, name: str) -> None:
    (source / name).write_bytes(b"0")
    assert copy(source, tmp_path / "target", name) == 1
    clean(tmp_path / "target", [name])
    assert [path.name for path in (tmp_path / "target").iterdir()] == [name]


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_a_name_that_no_file_can_have_is_a_reason(source: Path, name: str) -> None:
    assert or_reason(source, write, part_of(name, []), 0, b"x", digest(b"x")) is None
    assert isinstance(or_reason(source, finish, part_of(name, []), name, 1), str)


def test_a_damaged_piece_is_refused(source: Path, tmp_path: Path) -> None:
    wanted = content(source, "b/long").digests
    with pytest.raises(ValueError, match="it was damaged on its way"):
        write(tmp_path, part_of("b/long", wanted), 0, b"9999", wanted[0])
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("name", ["../out", "/etc/out", "b/../../out"])
def test_no_name_leads_out_of_the_folder(source: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not below the folder"):
        differing(source, name, 0, [])
    with pytest.raises(ValueError, match="is not below the folder"):
        write(source, name, 0, b"", digest(b""))
    with pytest.raises(ValueError, match="is not below the folder"):
        finish(source, "part", name, 0)
    with pytest.raises(ValueError, match="is not below the folder"):
        finish(source, name, "name", 0)


def test_no_link_leads_out_of_the_folder(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (source / "out").symlink_to(outside)
    with pytest.raises(ValueError, match="symbolic link"):
        write(source, "out/file", 0, b"x", digest(b"x"))
    for name in ("own", f"own{PART}"):
        (source / name).symlink_to(outside / "file")
    with pytest.raises(ValueError, match="'own' is a symbolic link"):
        differing(source, "own", 0, [])
    for name in ("own", "b"):
        with pytest.raises(ValueError, match=f"'{name}' is a folder or a link there"):
            finish(source, "part", name, 0)
    with pytest.raises(OSError, match="symbolic links"):
        write(source, f"own{PART}", 0, b"x", digest(b"x"))
    with pytest.raises(OSError, match="symbolic links"):
        finish(source, f"own{PART}", "new", 0)
    assert (outside / "file").read_bytes() == b"mine"


def test_a_pipe_in_place_of_a_part_is_refused(source: Path) -> None:
    os.mkfifo(source / f"x{PART}")
    with pytest.raises(OSError, match="No such device"):
        write(source, f"x{PART}", 0, b"x", digest(b"x"))
