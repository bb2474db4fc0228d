"""Tests for the pieces in which files are copied."""

import os
from pathlib import Path

import pytest
from farandole.files import pieces
from farandole.files.pieces import PART, count, digest, digests, finish, missing, names, read, write


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
    wanted = digests(source, name)
    numbers = missing(target, name, wanted)
    for number in numbers or ():
        write(target, name, number, read(source, name, number), wanted[number])
    if numbers is not None:
        finish(target, name, (source / name).stat().st_size, wanted)
    return len(numbers or ())


def test_files_are_listed_in_order_without_links_and_unfinished_copies(source: Path) -> None:
    (source / "link").symlink_to("a")
    (source / f"c{PART}").write_bytes(b"x")
    os.mkfifo(source / "pipe")
    assert list(names(source)) == [("a", 0), ("b/long", 10)]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(names(tmp_path / "none"))


def test_a_file_is_copied_in_pieces(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert [count(size) for size in (0, 1, 4, 5, 10)] == [0, 1, 1, 2, 3]
    assert copy(source, target, "b/long") == 3
    assert copy(source, target, "a") == 0
    assert {name: (target / name).read_bytes() for name, _ in names(target)} == {"a": b"", "b/long": b"0123456789"}
    assert missing(target, "b/long", digests(source, "b/long")) is None


def test_a_copy_that_was_cut_continues(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    wanted = digests(source, "b/long")
    write(target, "b/long", 1, b"4567", wanted[1])
    assert not (target / "b/long").exists()
    assert missing(target, "b/long", wanted) == [0, 2]
    assert copy(source, target, "b/long") == 2
    assert (target / "b/long").read_bytes() == b"0123456789"


def test_a_file_that_changed_is_replaced_only_when_the_new_one_is_complete(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copy(source, target, "b/long")
    (source / "b/long").write_bytes(b"abc")
    wanted = digests(source, "b/long")
    assert missing(target, "b/long", wanted) == [0]
    write(target, "b/long", 0, b"abc", wanted[0])
    assert (target / "b/long").read_bytes() == b"0123456789"
    finish(target, "b/long", 3, wanted)
    assert (target / "b/long").read_bytes() == b"abc"


def test_a_damaged_piece_and_a_changed_file_are_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    wanted = digests(source, "b/long")
    with pytest.raises(ValueError, match="'b/long' was damaged on its way"):
        write(target, "b/long", 0, b"9999", wanted[0])
    write(target, "b/long", 0, b"0123", wanted[0])
    with pytest.raises(ValueError, match="'b/long' changed while it was copied; repeat the copy"):
        finish(target, "b/long", 4, [digest(b"other")])
    assert not (target / "b/long").exists()


@pytest.mark.parametrize("name", ["../out", "/etc/out", "b/../../out"])
def test_no_name_leads_out_of_the_folder(source: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not below the folder"):
        missing(source, name, [])
    with pytest.raises(ValueError, match="is not below the folder"):
        write(source, name, 0, b"", digest(b""))
    with pytest.raises(ValueError, match="is not below the folder"):
        finish(source, name, 0, [])


def test_no_link_leads_out_of_the_folder(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (source / "out").symlink_to(outside)
    with pytest.raises(ValueError, match="symbolic link"):
        write(source, "out/file", 0, b"x", digest(b"x"))
    (source / "own").symlink_to(outside / "file")
    with pytest.raises(ValueError, match="'own' is a folder or a link there"):
        missing(source, "own", [])
    with pytest.raises(ValueError, match="'b' is a folder or a link there"):
        missing(source, "b", [])
    assert list(outside.iterdir()) == []
