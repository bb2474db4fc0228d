"""Images in files have the OCI image layout."""

import hashlib
import json
import tarfile

import pytest
from farandole.exceptions import RegistryError, UsageError
from farandole.registry.client import Registry
from farandole.registry.image import Base, ModelImage
from farandole.registry.layout import write_layout

from tests.models import save_small
from tests.registry import BASE, push_serving_image, running_registry


@pytest.fixture
def image(model_store, tmp_path):
    with running_registry(tmp_path / "registry") as registry:
        base = registry.reference(BASE)
        push_serving_image(base)
        yield ModelImage.make(save_small(model_store), Base.find(base, Registry.of(base)))


def test_a_file_has_all_blobs_and_both_indexes(image, tmp_path):
    path = tmp_path / "iris.tar"
    assert write_layout(image, path, "iris:1") == path.stat().st_size
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}
    [entry] = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == image.manifest.digest
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [docker] = json.loads(files["manifest.json"])
    manifest = json.loads(files[f"blobs/{entry['digest'].replace(':', '/')}"])
    layers = [f"blobs/{layer['digest'].replace(':', '/')}" for layer in manifest["layers"]]
    assert (docker["Layers"], docker["RepoTags"]) == (layers, ["iris:1"])
    assert {docker["Config"], *layers} <= set(files)
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == name.rpartition("/")[2] for name, content in blobs.items())


def test_a_file_that_exists_stays(image, tmp_path):
    (tmp_path / "iris.tar").write_text("mine")
    with pytest.raises(UsageError, match=r"iris\.tar exists already; name another file"):
        write_layout(image, tmp_path / "iris.tar", "iris:1")
    assert (tmp_path / "iris.tar").read_text() == "mine"


def no_links(*_):
    raise PermissionError(1, "Operation not permitted")


def test_a_file_system_needs_no_links(image, tmp_path, monkeypatch):
    monkeypatch.setattr("os.link", no_links)
    before = {*tmp_path.iterdir()}
    assert write_layout(image, tmp_path / "iris.tar", "iris:1") > 0
    with tarfile.open(tmp_path / "iris.tar") as archive:
        assert "index.json" in archive.getnames()
    assert {*tmp_path.iterdir()} == {*before, tmp_path / "iris.tar"}


def test_a_file_that_appears_meanwhile_stays(image, tmp_path, monkeypatch):
    def appear(*_):
        (tmp_path / "iris.tar").write_text("mine")

    monkeypatch.setattr("os.fsync", appear)
    for patched in (False, True):
        if patched:
            monkeypatch.setattr("os.link", no_links)
        with pytest.raises(UsageError, match=r"iris\.tar exists already"):
            write_layout(image, tmp_path / "iris.tar", "iris:1")
        assert (tmp_path / "iris.tar").read_text() == "mine"
        (tmp_path / "iris.tar").unlink()


@pytest.mark.parametrize("name", ["missing/iris.tar", "full.tar"])
def test_a_file_that_cannot_be_written_leaves_nothing(image, tmp_path, monkeypatch, name):
    def full(*_):
        raise OSError(28, "No space left on device")

    if name == "full.tar":
        monkeypatch.setattr("os.fsync", full)
    before = {*tmp_path.iterdir()}
    with pytest.raises(RegistryError, match=rf"{name} could not be written: "):
        write_layout(image, tmp_path / name, "iris:1")
    assert {*tmp_path.iterdir()} == before
