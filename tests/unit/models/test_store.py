"""The model store keeps immutable versions, and no part of a version that could not be written."""

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from farandole.exceptions import ModelDamagedError, ModelError, ModelInUseError, ModelNotFoundError, UsageError
from farandole.models.model import ModelInfo, TensorInfo
from farandole.models.names import ModelName
from farandole.models.store import ModelStore, in_use, verify

IRIS = ModelName(model="iris")


@pytest.fixture
def store(tmp_path):
    return ModelStore(tmp_path / "models", groups=tmp_path / "groups")


def save(store, name=IRIS, weights=b"weights", **about):
    def write(folder: Path) -> ModelInfo:
        (folder / "weights.safetensors").write_bytes(weights)
        return ModelInfo(name=name, version=1, folder=folder, created=about.pop("created", 1.0), **about)

    return store.save(name, write)


def test_a_saved_version_is_found_with_all_that_is_known_of_it(store):
    inputs = (TensorInfo(name="x", datatype="FP32", shape=(-1, 4)),)
    saved = save(store, run="20261128-1", metrics={"accuracy": 0.9}, inputs=inputs, versions={"torch": "2.13.0"})
    assert (str(saved), saved.folder) == ("iris:1", store.folder / "iris" / "1")
    assert store.find("iris") == store.find("iris:1") == store.find("iris:latest") == saved
    assert (saved.run, saved.metrics, saved.inputs, saved.size) == ("20261128-1", {"accuracy": 0.9}, inputs, 7)
    record = json.loads((saved.folder / "model.json").read_text())
    assert (record["name"], record["version"], record["files"]["weights.safetensors"]["bytes"]) == ("iris", 1, 7)
    verify(saved)


def test_each_save_is_a_new_version(store):
    assert [str(save(store, created=float(number))) for number in range(1, 12)][-1] == "iris:11"
    assert [info.version for info in store.list()] == [*range(11, 0, -1)]
    assert [info.version for info in store.versions("iris")] == [*range(1, 12)]
    assert store.find("iris").version == 11


def test_files_of_a_version_are_read_only(store):
    folder = save(store).folder
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"weights.safetensors": 0o444, "model.json": 0o444, "in-use": 0o644}


def test_processes_that_save_at_the_same_time_get_different_versions(store):
    threads = [threading.Thread(target=save, args=(store,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [info.version for info in store.versions("iris")] == [*range(1, 17)]
    assert not list(store.folder.glob("iris/.*"))


def test_a_full_disk_leaves_nothing(store):
    save(store)

    def write(folder: Path) -> ModelInfo:
        (folder / "weights.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        ModelError, match=r"iris could not be saved in .*: No space left on device\. Nothing was stored"
    ):
        store.save(IRIS, write)
    assert [path.name for path in (store.folder / "iris").iterdir()] == ["1"]


def test_a_killed_writer_leaves_nothing_that_is_listed(store, tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from farandole.models.names import ModelName
from farandole.models.store import ModelStore

def write(folder):
    (folder / "weights.safetensors").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

ModelStore(Path({str(store.folder)!r})).save(ModelName(model="iris"), write)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (store.names(), store.list()) == ([], [])
    assert [path.name[:5] for path in (store.folder / "iris").iterdir()] == [".new-"]
    assert save(store).version == 1
    assert [path.name for path in (store.folder / "iris").iterdir()] == ["1"]


def test_a_save_leaves_the_files_of_another_save_alone(store):
    def write(folder: Path) -> ModelInfo:
        (folder / "weights.safetensors").write_bytes(b"weights")
        assert save(store).version == 1
        return ModelInfo(name=IRIS, version=1, folder=folder, created=1.0)

    assert store.save(IRIS, write).version == 2
    verify(store.find("iris:2"))


def test_a_version_is_on_the_disk_before_it_is_visible(store, monkeypatch):
    """The folder of the version is synced under its temporary name, and the new folders above it are synced, too."""
    synced, models = [], store.folder / "iris"

    def fsync(descriptor):
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (models / "1").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    save(store)
    assert {(name.partition("-")[0], visible) for name, visible in synced} >= {
        (".new", False),
        ("models", False),
        ("iris", True),
    }


def test_a_version_that_may_not_outlast_a_power_failure_is_saved(store, monkeypatch):
    def fsync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink() == store.folder / "iris":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(UserWarning, match=r"iris:1 is saved, but .*: Input/output error"):
        saved = save(store)
    assert store.find("iris") == saved


def test_a_changed_file_is_damaged(store):
    info = save(store)
    weights = info.folder / "weights.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"changed")
    with pytest.raises(ModelDamagedError, match=r"iris:1 is damaged: weights.safetensors has another content"):
        verify(info)
    weights.unlink()
    with pytest.raises(ModelDamagedError, match=r"iris:1 is damaged: 'weights.safetensors': No such file"):
        verify(info)
    weights.symlink_to("/etc/passwd")
    with pytest.raises(ModelDamagedError, match="is a symbolic link"):
        verify(info)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metrics": {"a": "x"}}, "'metrics' in model.json must be numbers"),
        ({"versions": {"torch": 2}}, "'versions' in model.json must be texts"),
        ({"inputs": [{"name": "x"}]}, "'inputs' in model.json must be a list of tensors"),
        ({"files": {"evil.pickle": {}}}, "lists the file 'evil.pickle'"),
        ({"files": {"../1/weights.safetensors": {}}}, "lists the file '../1/weights.safetensors'"),
        ({"files": {}}, "has no 'created' or no 'weights.safetensors'"),
        ({"files": {"weights.safetensors": {"bytes": 1, "sha256": "x"}}}, "no valid sha256"),
        ({"files": {"weights.safetensors": {"bytes": -1, "sha256": "0" * 64}}}, "no valid size"),
        ({"created": "yesterday"}, "'created' in model.json must be of type time"),
    ],
)
def test_a_damaged_info_is_named_and_left_out_of_the_list(store, change, reason):
    save(store)
    path = save(store).folder / "model.json"
    record = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps(record | change))
    with pytest.raises(ModelDamagedError, match=f"iris:2 cannot be read: .*{reason}"):
        store.find("iris:2")
    with pytest.warns(UserWarning, match="iris:2 cannot be read"):
        assert [info.version for info in store.list()] == [1]
    with pytest.warns(UserWarning, match="iris:2 cannot be read"):
        assert [info.version for info in store.versions("iris")] == [1]


def test_an_info_does_not_lead_out_of_its_folder(store, tmp_path):
    saved = save(store)
    path = saved.folder / "model.json"
    record = json.loads(path.read_text()) | {"name": "../evil", "group": "..", "version": 7, "folder": "/etc"}
    path.unlink()
    path.write_text(json.dumps(record))
    assert store.find("iris:1") == saved
    path.unlink()
    path.symlink_to(tmp_path / "model.json")
    (tmp_path / "model.json").write_text(json.dumps(record))
    with pytest.raises(ModelDamagedError, match="'model.json' is a symbolic link"):
        store.find("iris:1")


def test_a_missing_model_is_named_with_a_similar_one(store):
    save(store)
    with pytest.raises(ModelNotFoundError, match=r"no model 'irys' .* Did you mean 'iris'"):
        store.find("irys")
    with pytest.raises(ModelNotFoundError, match=r"'iris' has no version 7; the latest are 1"):
        store.find("iris:7")


def test_a_removed_version_is_never_given_again(store):
    save(store)
    save(store)
    store.remove("iris:2")
    assert [info.version for info in store.versions("iris")] == [1]
    assert save(store).version == 3


def test_a_killed_removal_is_finished_by_the_next_save(store):
    for _ in range(3):
        save(store)
    gone = store.folder / "iris" / ".gone-3-0123456789abcdef"
    (store.folder / "iris" / "3").rename(gone)
    assert save(store).version == 4
    assert list(gone.parent.glob(".gone-*/*")) == []


def test_only_the_number_of_the_highest_removed_version_is_kept(store):
    for _ in range(3):
        save(store)
    for version in (2, 3, 1):
        store.remove(f"iris:{version}")
    [gone] = (store.folder / "iris").iterdir()
    assert (gone.name[:8], list(gone.iterdir())) == (".gone-3-", [])
    assert store.names() == []
    assert save(store).version == 4


def test_a_version_is_removed_from_a_full_disk(store):
    save(store)
    code = f"""
import resource, signal
from pathlib import Path
from farandole.models.store import ModelStore

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
ModelStore(Path({str(store.folder)!r})).remove("iris:1")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert store.names() == []
    assert save(store).version == 2


def test_files_that_cannot_be_deleted_are_named_and_deleted_later(store, monkeypatch):
    save(store)

    def unlink(path, *, dir_fd=None):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.raises(ModelError, match=r"iris:1 is removed, but its files could not be deleted: Input/output"):
            store.remove("iris:1")
    assert store.names() == []
    assert save(store).version == 2
    assert list(store.folder.glob("iris/.gone-*/*")) == []


def test_only_a_version_that_is_named_is_removed(store):
    save(store)
    with pytest.raises(ModelNotFoundError, match="name the version to remove: iris:1"):
        store.remove("iris")
    with pytest.raises(ModelNotFoundError, match="no version 2"):
        store.remove("iris:2")
    assert store.find("iris:1").version == 1


def test_a_version_in_use_is_not_removed(store):
    info = save(store)
    with in_use(info), in_use(info), pytest.raises(ModelInUseError, match="iris:1 is being served"):
        store.remove("iris:1")
    store.remove("iris:1")
    with pytest.raises(ModelNotFoundError, match="iris:1 has been removed"), in_use(info):
        pass


def test_models_of_a_group_are_in_its_folder(store, tmp_path):
    (tmp_path / "groups" / "vision").mkdir(parents=True)
    save(store)
    saved = save(store, ModelName(model="iris", group="vision"))
    assert saved.folder == tmp_path / "groups" / "vision" / "models" / "iris" / "1"
    assert store.find("vision/iris:1") == saved
    assert [str(name) for name in store.names()] == ["iris", "vision/iris"]


def test_a_group_that_does_not_exist_is_refused(store, tmp_path):
    with pytest.raises(UsageError, match=r"there is no group 'vision' here; save the model as 'iris'\.$"):
        save(store, ModelName(model="iris", group="vision"))
    for group in ("vision", "audio"):
        (tmp_path / "groups" / group).mkdir(parents=True)
    with pytest.raises(
        UsageError, match=r"no group 'vison' here; your groups are audio, vision\. Did you mean 'vision'\?"
    ):
        save(store, ModelName(model="iris", group="vison"))
    assert sorted(path.name for path in (tmp_path / "groups").iterdir()) == ["audio", "vision"]


def test_a_version_of_a_group_is_copied_to_the_own_store(store, tmp_path):
    (tmp_path / "groups" / "vision").mkdir(parents=True)
    shared = save(store, ModelName(model="iris", group="vision"), metrics={"accuracy": 0.9})
    save(store)
    copied = store.copy("vision/iris:1")
    assert (str(copied), copied.folder) == ("iris:2", store.folder / "iris" / "2")
    assert store.find("iris:2") == copied
    assert (copied.metrics, copied.files) == (shared.metrics, shared.files)
    verify(copied)


def test_a_damaged_version_is_not_copied(store):
    weights = save(store).folder / "weights.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"changed")
    with pytest.raises(ModelDamagedError, match="weights.safetensors has another content"):
        store.copy("iris:1")
    assert [info.version for info in store.versions("iris")] == [1]


def test_a_version_that_changes_while_it_is_copied_is_not_kept(store):
    class Changed(ModelStore):
        def save(self, name, write):
            weights = self.find("iris:1").folder / "weights.safetensors"
            weights.chmod(0o644)
            weights.write_bytes(b"changed")
            return super().save(name, write)

    save(store)
    with pytest.raises(ModelDamagedError, match=r"iris:1 was changed while it was copied. Copy it again"):
        Changed(store.folder).copy("iris:1")
    assert [info.version for info in store.versions("iris")] == [1]
