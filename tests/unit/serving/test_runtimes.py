"""Versions are loaded if they are intact, and without reading a pickle."""

import hashlib
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from farandole.exceptions import ModelDamagedError, ModelError, ModelInUseError
from farandole.models.store import ModelStore
from farandole.ranks.models.save import save_model
from farandole.serving.runtimes import TorchRuntime, load
from torch import nn


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path / "models"))
    return ModelStore()


@pytest.fixture
def info(store):
    save_model(nn.Linear(4, 2), "iris", example=torch.ones(1, 4))
    return store.find("iris")


def test_a_loaded_version_computes_what_the_model_computes(store):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()
    save_model(model, "iris", example=torch.randn(2, 4))
    runtime = load(store.find("iris"))
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = model(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(runtime.compute({"input": inputs})["output"], expected, rtol=1e-5, atol=1e-6)


def test_a_loaded_version_is_not_removed(store, info):
    runtime = load(info)
    with pytest.raises(ModelInUseError):
        store.remove("iris:1")
    runtime.close()
    store.remove("iris:1")


def test_a_version_without_an_example_is_not_served(store):
    save_model(nn.Linear(1, 1), "plain")
    with pytest.raises(ModelError, match=r"plain:1 was saved without an example, so it cannot be served"):
        load(store.find("plain"))


def test_a_damaged_version_is_not_served_and_can_be_removed(store, info):
    path = info.folder / "weights.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelDamagedError, match=r"weights.safetensors has another content"):
        load(info)
    store.remove("iris:1")


@pytest.mark.parametrize(
    "member", ["data/sample_inputs/model.pt", "data/weights/model.pt", "data/constants/model.pt", "opaque", "custom"]
)
def test_no_pickle_is_read(store, info, tmp_path, member):
    """Plant a pickle where torch would read one, with valid digests, as somebody with access to the folder could."""
    planted, program = tmp_path / "executed", info.folder / "program.pt2"
    _plant(program, member, pickle.dumps(Touch(planted)))
    with pytest.raises(ModelDamagedError, match=r"in program.pt2 is a pickle, and loading it could run any code"):
        TorchRuntime(info)
    assert not planted.exists()
    # torch itself would run it.
    if member == "data/sample_inputs/model.pt":
        with pytest.raises(Exception):  # noqa: B017 - what torch makes of it
            torch.export.load(program)


def _plant(program, member, content):
    with zipfile.ZipFile(program) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    root = next(iter(members)).partition("/")[0]
    if member in {"opaque", "custom"}:
        name, kind = f"{root}/data/constants/model_constants_config.json", f"{member}_obj_0"
        members[name] = (
            b'{"config": {"evil": {"path_name": "%s", "is_param": false, "use_pickle": true, "tensor_meta": null}}}'
            % kind.encode()
        )
        members[f"{root}/data/constants/{kind}"] = content
    else:
        members[f"{root}/{member}"] = content
    program.chmod(0o644)
    with zipfile.ZipFile(program, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("name", ["weights.safetensors", "example.json", "program.pt2"])
def test_a_pickle_in_place_of_a_file_is_not_read(store, info, tmp_path, name):
    planted = tmp_path / "executed"
    _replace(info, name, pickle.dumps(Touch(planted)))
    with pytest.raises(ModelError, match=r"^iris:1 (cannot be loaded|is damaged): (?!.*another content)"):
        load(store.find("iris"))
    assert not planted.exists()


def _replace(info, name, content):
    """Replace a file of a version, with a valid digest, as somebody with access to the folder could."""
    record = json.loads((info.folder / "model.json").read_text())
    record["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    for file, written in ((name, content), ("model.json", json.dumps(record).encode())):
        (info.folder / file).chmod(0o644)
        (info.folder / file).write_bytes(written)


def test_a_program_that_is_no_archive_is_damaged(info):
    (info.folder / "program.pt2").chmod(0o644)
    (info.folder / "program.pt2").write_bytes(b"\x80\x04N.")
    with pytest.raises(ModelDamagedError, match=r"program.pt2 cannot be read"):
        TorchRuntime(info)


def test_a_program_that_others_could_write_is_not_loaded(info):
    info.folder.chmod(0o777)
    with pytest.raises(ModelError, match=r"other users may have written it and loading it runs their code: .* copy it"):
        TorchRuntime(info)


def test_a_failed_load_leaves_the_version_removable(store, info):
    shutil.copy(info.folder / "program.pt2", info.folder / "spare")
    (info.folder / "program.pt2").chmod(0o644)
    (info.folder / "program.pt2").write_bytes(b"")
    with pytest.raises(ModelDamagedError):
        TorchRuntime(info)
    store.remove("iris:1")
