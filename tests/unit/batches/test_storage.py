"""Tests of the files of a source, on a disk and in an object store."""

import os
import pickle

import fsspec
import pytest
from farandole.batches.storage import Storage
from farandole.exceptions import RankError
from pyarrow import fs

NAMES = ("b/2.png", "a.png", ".hidden", "_SUCCESS", "b/.git/x", "b/_old/y", "été/ñ 1.png")


@pytest.fixture
def memory():
    """A file system of fsspec in memory, which stands for an object store."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(params=["disk", "store"])
def storage(request, tmp_path, memory):
    for name in NAMES:
        if request.param == "disk":
            (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "images" / name).write_bytes(name.encode())
        else:
            memory.pipe(f"/bucket/images/{name}", name.encode())
    place = str(tmp_path / "images") if request.param == "disk" else "memory://bucket/images"
    return pickle.loads(pickle.dumps(Storage(place)))


def test_the_files_of_a_folder_are_listed_and_read(storage):
    kind, found = storage.listed()
    assert kind == fs.FileType.Directory
    names = [storage.below(file.path) for file in found]
    assert names == ["a.png", "b/2.png", "été/ñ 1.png"]
    assert [file.size for file in found] == [len(name.encode()) for name in names]
    assert storage.contents(["b/2.png", "a.png"]) == [b"b/2.png", b"a.png"]
    with storage.mapped("a.png") as file:
        assert file.read() == b"a.png"
    with pytest.raises(FileNotFoundError):
        storage.contents(["gone.png"])


def test_a_single_file_has_no_path_below_itself(storage):
    single = Storage(f"{storage.name}/a.png")
    kind, [file] = single.listed()
    assert (kind, single.below(file.path)) == (fs.FileType.File, "")
    with single.open("") as opened:
        assert opened.read() == b"a.png"
    assert Storage(f"{storage.name}/gone.png").listed() == (fs.FileType.NotFound, [])


def test_a_rank_that_does_not_see_the_source_says_so(storage):
    storage.check()
    with pytest.raises(RankError, match=r"a rank does not see the source .*/nope\. Choose a folder that all workers"):
        Storage(f"{storage.name}/nope").check()


def test_a_change_of_a_file_of_the_same_size_is_seen(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    os.utime(tmp_path / "a", ns=(1, 1))
    _, [before] = Storage(str(tmp_path)).listed()
    (tmp_path / "a").write_bytes(b"2")
    _, [after] = Storage(str(tmp_path)).listed()
    assert (after.size, after.mtime_ns > before.mtime_ns) == (before.size, True)


def test_links_are_followed_but_not_in_circles_and_pipes_are_left_out(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.png").touch()
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "images" / "linked.png").symlink_to(tmp_path / "other" / "1.png")
    for loop, target in [("loop", "images"), ("up", "."), ("linked/back", "images")]:
        (tmp_path / "images" / loop).symlink_to(tmp_path / target)
    os.mkfifo(tmp_path / "images" / "pipe")
    storage = Storage(str(tmp_path / "images"))
    assert [storage.below(file.path) for file in storage.listed()[1]] == ["linked.png", "linked/1.png"]


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        Storage(str(tmp_path)).listed()
