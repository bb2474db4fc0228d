"""No link, pipe or folder that a member of a group plants leads another member out of the store, or blocks it."""

import fcntl
import hashlib
import os
from pathlib import Path

import pytest
from farandole.exceptions import ModelDamagedError, ModelError, ModelNotFoundError
from farandole.models import folders
from farandole.models.model import ModelInfo
from farandole.models.names import ModelName
from farandole.models.store import ModelStore, in_use

IRIS, SHARED = ModelName(model="iris"), ModelName(model="iris", group="vision")
CONTENT = {"id_rsa": 0o600, "in-use": 0o644, "notes/draft.txt": 0o644}


@pytest.fixture
def home(tmp_path):
    """A folder that looks like a version to the store and belongs to the user alone."""
    for name, mode in CONTENT.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("private")
        path.chmod(mode)
    yield tmp_path / "home"
    found = {path for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path / "home")): path.stat().st_mode & 0o777 for path in found} == CONTENT
    assert {path.read_text() for path in found} == {"private"}


@pytest.fixture
def store(tmp_path):
    (tmp_path / "groups" / "vision").mkdir(parents=True)
    return ModelStore(tmp_path / "models", groups=tmp_path / "groups")


@pytest.fixture
def shared(store, tmp_path):
    """The folder of a model of the group, which has two versions."""
    save(store, SHARED)
    return save(store, SHARED).folder.parent


def save(store, name=IRIS, attack=lambda: None):
    def write(folder: Path) -> ModelInfo:
        attack()
        (folder / "weights.safetensors").write_bytes(b"weights")
        return ModelInfo(name=name, version=1, folder=folder, created=1.0)

    return store.save(name, write)


def swap(path, target):
    """Replace a file or a folder with a link, as another process could at any time."""
    path.rename(path.with_name(".swapped"))
    path.symlink_to(target)


@pytest.mark.parametrize("name", [".gone-1-aa", ".gone-9-aa", ".new-aa"])
def test_a_planted_link_is_not_followed(store, shared, home, name):
    (shared / name).symlink_to(home)
    assert save(store, SHARED).version == 3
    store.remove("vision/iris:1")
    store.remove("vision/iris:3")
    assert [info.version for info in store.versions("vision/iris")] == [2]


def test_a_link_in_a_removed_version_is_deleted_and_not_followed(store, shared, home):
    (shared / "2" / "folder").mkdir()
    for name in ("link", "folder/link"):
        (shared / "2" / name).symlink_to(home)
    store.remove("vision/iris:2")
    assert list(shared.glob(".gone-*/*")) == []


def test_a_version_that_is_a_link_is_not_removed(store, shared):
    own = save(store)
    swap(shared / "2", own.folder)
    with pytest.raises(ModelNotFoundError, match=r"'vision/iris' has no version 2; the latest are 1\."):
        store.remove("vision/iris:2")
    assert store.find("iris") == own


@pytest.mark.parametrize("link", ["models", "models/iris"])
def test_a_folder_of_a_group_that_is_a_link_is_refused(store, shared, link):
    own = save(store)
    swap(store._groups / "vision" / link, own.folder.parents["/" not in link])
    assert [str(name) for name in store.names()] == ["iris"]
    with pytest.raises(ModelNotFoundError, match="no model 'vision/iris'"):
        store.remove("vision/iris:1")
    name = link.rpartition("/")[2]
    with pytest.raises(ModelError, match=rf"vision/iris could not be saved .*: '{name}' is a link or a file"):
        save(store, SHARED)
    assert store.versions("iris") == [own]


def test_a_version_that_becomes_a_link_before_it_is_locked_is_not_removed(store, shared, home):
    class Swapped(ModelStore):
        def _versions(self, name):
            found = super()._versions(name)
            swap(shared / "2", home)
            return found

    with pytest.raises(ModelError, match=r"vision/iris:2 could not be removed: '2' is a link or a file, not a folder"):
        Swapped(store.folder, groups=store._groups).remove("vision/iris:2")


def test_a_version_that_becomes_a_link_before_it_is_emptied_is_not_followed(store, shared, home, monkeypatch):
    def swapped(name, version, parent):
        gone = original(name, version, parent)
        swap(shared / gone, home)
        return gone

    original = folders.rename_gone
    monkeypatch.setattr(folders, "rename_gone", swapped)
    with pytest.raises(ModelError, match="is removed, but its files could not be deleted: .* is a link or a file"):
        store.remove("vision/iris:2")


def test_folders_that_are_nested_too_deeply_are_named(store, shared):
    folder = os.open(shared / "2", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("x", dir_fd=folder)
        inner = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(ModelError, match="its files could not be deleted: folders are nested too deeply"):
        store.remove("vision/iris:2")
    assert save(store, SHARED).version == 3


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "in-use"])
def test_a_link_beside_a_file_that_is_being_written_is_not_followed(store, shared, home, name):
    def attack():
        for new in shared.glob(".new-*"):
            (new / name).unlink(missing_ok=True)
            (new / name).symlink_to(home / "id_rsa")

    if name == "weights.safetensors":
        with pytest.raises(ModelError, match="vision/iris could not be saved in .*: File exists"):
            save(store, SHARED, attack)
    else:
        save(store, SHARED, attack)
    assert [path.name for path in store.folder.iterdir()] == []


def test_a_version_for_a_group_is_complete_and_read_only(store, shared):
    modes = {path.name: path.stat().st_mode & 0o777 for path in (shared / "2").iterdir()}
    assert modes == {"weights.safetensors": 0o444, "model.json": 0o444, "in-use": 0o644}
    assert list(store.folder.iterdir()) == []


def test_a_file_with_the_name_of_the_next_version_does_not_block_a_save(store, shared, home):
    (shared / "3").write_text("")
    (shared / "4").symlink_to(home)
    assert save(store, SHARED).version == 5


def test_a_model_whose_versions_are_used_up_is_refused(store, shared):
    (shared / "999999999").mkdir()
    with pytest.raises(ModelError, match="vision/iris has no free version after 999999999; save it under another name"):
        save(store, SHARED)


def test_a_version_that_is_removed_during_a_save_is_not_given_again(store, monkeypatch):
    def first(listing):
        def listed(folder):
            found = listing(folder)
            patch.undo()
            store.remove("iris:2")
            return found

        return listed

    def attack():
        for name in ("gone", "versions_in"):
            patch.setattr(folders, name, first(getattr(folders, name)))

    save(store)
    save(store)
    with monkeypatch.context() as patch:
        assert save(store, attack=attack).version == 3


@pytest.mark.parametrize("change", [lambda path, home: swap(path, home / "id_rsa"), lambda path, home: path.unlink()])
def test_a_file_that_becomes_a_link_or_goes_while_it_is_copied_is_refused(store, shared, home, change):
    class Swapped(ModelStore):
        def save(self, name, write):
            change(shared / "2" / "weights.safetensors", home)
            return super().save(name, write)

    with pytest.raises(ModelDamagedError, match=r"vision/iris:2 was changed while it was copied. Copy it again"):
        Swapped(store.folder, groups=store._groups).copy("vision/iris:2")
    assert [str(name) for name in store.names()] == ["vision/iris"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_regular_file_is_written_as_a_part_of_a_version(store, home, kind):
    def attack():
        [new] = store.folder.glob("iris/.new-*")
        (new / "example.json").symlink_to(home / "id_rsa") if kind == "link" else os.mkfifo(new / "example.json")

    with pytest.raises(ModelError, match=r"iris could not be saved in .*: 'example.json' is not a regular file"):
        save(store, attack=attack)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_not_a_regular_file_is_refused(store, shared, home, kind):
    info, lock = store.find("vision/iris:2"), shared / "2" / "in-use"
    lock.unlink()
    lock.symlink_to(home / "in-use") if kind == "link" else os.mkfifo(lock)
    with (
        pytest.raises(ModelDamagedError, match="vision/iris:2 is damaged: 'in-use' is not a regular file"),
        in_use(info),
    ):
        pass
    with pytest.raises(ModelError, match="vision/iris:2 could not be removed: 'in-use' is not a regular file"):
        store.remove("vision/iris:2")


def test_a_version_that_is_being_removed_is_not_in_use(store):
    info = save(store)
    removal = folders.locked(info.folder, fcntl.LOCK_EX)
    with removal, pytest.raises(ModelNotFoundError, match=r"iris:1 has been removed\."), in_use(info):
        pass


@pytest.mark.parametrize("error", [FileNotFoundError("weights"), BlockingIOError("weights")])
def test_an_error_while_a_version_is_in_use_is_not_hidden(store, error):
    with pytest.raises(type(error), match="weights"), in_use(save(store)):
        raise error


def test_a_file_of_another_size_is_not_read(store, shared, monkeypatch):
    weights = shared / "2" / "weights.safetensors"
    weights.chmod(0o644)
    os.truncate(weights, 2**30)
    monkeypatch.delattr(hashlib, "file_digest")
    with pytest.raises(ModelDamagedError, match="weights.safetensors has another content"):
        store.copy("vision/iris:2")
