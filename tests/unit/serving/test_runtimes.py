"""Versions are loaded if they are intact, and without reading a pickle."""

import hashlib
import importlib.util
import io
import json
import os
import pickle
import shutil
import subprocess
import warnings
import zipfile

import numpy as np
import pytest
import torch
from farandole.exceptions import ModelDamagedError, ModelError, ModelInUseError
from farandole.ranks.models.save import save_model
from farandole.serving.runtimes import TorchRuntime, load
from torch import nn

from spawner_config.local import SERVING_PYTHON


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


@pytest.fixture
def info(model_store):
    save_model(nn.Linear(4, 2), "iris", example=torch.ones(1, 4))
    return model_store.find("iris")


def test_a_loaded_version_computes_what_the_model_computes(model_store):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()
    save_model(model, "iris", example=torch.randn(2, 4))
    runtime = load(model_store.find("iris"))
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = model(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(runtime.compute({"input": inputs})["output"], expected, rtol=1e-5, atol=1e-6)


ONNX = """
import json, sys
import numpy as np
from farandole.models.store import ModelStore
from farandole.serving.runtimes import OnnxRuntime, load

runtime = load(ModelStore().find("iris"))
assert type(runtime) is OnnxRuntime
assert "torch" not in sys.modules
print(json.dumps(runtime.compute({"input": np.array(json.loads(sys.argv[1]), np.float32)})["output"].tolist()))
"""


def test_a_version_with_onnx_computes_the_same_without_torch(model_store):
    """ONNX Runtime is only in the environment of endpoints."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    save_model(model, "iris", example=torch.randn(1, 4), onnx=True)
    inputs = torch.randn(5, 4)
    command = [SERVING_PYTHON, "-c", ONNX, json.dumps(inputs.tolist())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), model(inputs).detach())


def test_a_loaded_version_is_not_removed(model_store, info):
    runtime = load(info)
    with pytest.raises(ModelInUseError):
        model_store.remove("iris:1")
    runtime.close()
    model_store.remove("iris:1")


def test_a_version_without_an_example_is_not_served(model_store):
    save_model(nn.Linear(1, 1), "plain")
    with pytest.raises(ModelError, match=r"plain:1 was saved without an example, so it cannot be served"):
        load(model_store.find("plain"))


def test_a_damaged_version_is_not_served_and_can_be_removed(model_store, info):
    path = info.folder / "weights.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelDamagedError, match=r"weights.safetensors has another content"):
        load(info)
    model_store.remove("iris:1")


def test_a_version_that_needs_torch_is_named_with_what_its_user_can_do(info, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"no torch. Stop the endpoint with `%serve stop NAME` .* `%serve iris:1 --name NAME`"
    ):
        load(info)


def test_no_pickle_is_read(model_store, info, tmp_path):
    """Plant a pickle where torch would read one. `fd.load_model` has further tests of what programs may contain."""
    planted, content = tmp_path / "executed", io.BytesIO((info.folder / "program.pt2").read_bytes())
    with zipfile.ZipFile(content, "a") as archive, warnings.catch_warnings(action="ignore"):
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/data/sample_inputs/model.pt", pickle.dumps(Touch(planted)))
    _replace(info, "program.pt2", content.getvalue())
    with pytest.raises(ModelDamagedError, match=r"fd.save_model does not write, and loading it could run any code"):
        load(model_store.find("iris"))
    assert not planted.exists()


@pytest.mark.parametrize("name", ["weights.safetensors", "example.json", "program.pt2"])
def test_a_pickle_in_place_of_a_file_is_not_read(model_store, info, tmp_path, name):
    planted = tmp_path / "executed"
    _replace(info, name, pickle.dumps(Touch(planted)))
    with pytest.raises(ModelError, match=r"^iris:1 (cannot be loaded|is damaged): (?!.*another content)"):
        load(model_store.find("iris"))
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


def test_a_failed_load_leaves_the_version_removable(model_store, info):
    shutil.copy(info.folder / "program.pt2", info.folder / "spare")
    (info.folder / "program.pt2").chmod(0o644)
    (info.folder / "program.pt2").write_bytes(b"")
    with pytest.raises(ModelDamagedError):
        TorchRuntime(info)
    model_store.remove("iris:1")
