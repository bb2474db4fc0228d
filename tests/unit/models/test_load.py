"""`fd.load_model` returns a model that computes the same, and reads no pickle. Endpoints load programs likewise."""

import hashlib
import io
import json
import os
import pickle
import zipfile

import farandole
import pytest
import torch
from farandole.exceptions import ModelDamagedError, ModelError, ModelNotFoundError, UsageError
from farandole.models.load import load_model
from farandole.ranks.models.save import save_model
from safetensors.torch import save
from torch import nn

PROGRAM = "program.pt2"


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


class Difference(nn.Module):
    """Has two inputs, a buffer, a constant and tied parameters."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 4), nn.Linear(4, 4)
        self.decode.weight = self.encode.weight
        self.register_buffer("scale", torch.full((4,), 3.0))
        self.shift = torch.arange(4.0)

    def forward(self, first, second):
        return self.decode(self.encode(first - second)) * self.scale + self.shift


@pytest.fixture
def info(model_store):
    save_model(nn.Linear(4, 2), "iris", example=torch.ones(1, 4))
    return model_store.find("iris")


def test_a_loaded_model_computes_the_same_for_any_batch(model_store):
    model = Difference()
    save_model(model, "difference", example=(torch.randn(1, 4), torch.randn(1, 4)))
    loaded = farandole.load_model("difference:1")
    for rows in (1, 2, 7):
        first, second = torch.randn(rows, 4), torch.randn(rows, 4)
        expected = model(first, second).detach()
        torch.testing.assert_close(loaded(first, second), expected)
        torch.testing.assert_close(loaded(first, second=second), expected)
        torch.testing.assert_close(loaded(second=second, first=first), expected)


def test_a_loaded_model_keeps_its_results_and_their_names(model_store):
    class Both(nn.Module):
        def forward(self, x):
            return {"sum": x.sum(1), "double": 2 * x}

    save_model(Both(), "both", example=torch.ones(1, 2))
    found = load_model("both")(torch.tensor([[1.0, 2.0]]))
    assert {name: value.tolist() for name, value in found.items()} == {"sum": [3.0], "double": [[2.0, 4.0]]}


@pytest.mark.parametrize("key", ["iris", "iris:latest", "iris:2"])
def test_a_key_without_a_version_is_the_latest_one(model_store, info, key):
    latest = nn.Linear(4, 2)
    save_model(latest, "iris", example=torch.ones(1, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(load_model(key)(x), latest(x).detach())


def test_a_loaded_model_is_in_evaluation_mode_on_the_cpu_and_needs_no_gradients(model_store):
    save_model(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9)), "iris", example=torch.ones(1, 4))
    loaded = load_model("iris")
    assert isinstance(loaded, nn.Module)
    assert (loaded.training, loaded.eval() is loaded) == (False, True)
    assert {(one.device.type, one.requires_grad) for one in loaded.parameters()} == {("cpu", False)}
    x = torch.ones(2, 4)
    assert not loaded(x).requires_grad
    assert loaded(x).equal(loaded(x))
    with pytest.raises(ModelError, match=r"evaluation mode only; to train it further, load its weights.safetensors"):
        loaded.train()


@pytest.mark.parametrize(("inputs", "message"), [((), "missing a required argument: 'input'"), ((1, 2), "too many")])
def test_wrong_arguments_are_named(info, inputs, message):
    with pytest.raises(TypeError, match=message):
        load_model("iris")(*inputs)


def test_a_version_can_be_removed_while_it_is_loaded(model_store, info):
    loaded = load_model("iris")
    model_store.remove("iris:1")
    assert loaded(torch.ones(1, 4)).shape == (1, 2)


def test_what_cannot_be_loaded_is_named_with_the_remedy(model_store, info):
    save_model(nn.Linear(1, 1), "plain")
    with pytest.raises(ModelError, match=r"plain:1 was saved without an example, .* or save it with `example=x`"):
        load_model("plain")
    with pytest.raises(ModelNotFoundError, match="has no version 7; the latest are 1"):
        load_model("iris:7")
    with pytest.raises(ModelNotFoundError, match=r"no model 'irys' .* Did you mean 'iris'"):
        load_model("irys")
    with pytest.raises(UsageError, match="'newest' in 'iris:newest' is not a version"):
        load_model("iris:newest")
    write(info.folder / "weights.safetensors", b"changed")
    with pytest.raises(ModelDamagedError, match="weights.safetensors has another content"):
        load_model("iris")


def test_a_model_that_others_can_write_is_not_loaded(info):
    info.folder.chmod(0o777)
    with pytest.raises(
        ModelError, match=r"other users may have written it and loading it runs their code: .* `%models copy iris:1`"
    ):
        load_model("iris")


@pytest.mark.parametrize(
    "member",
    [
        "data/sample_inputs/model.pt",
        "data/weights/model.pt",
        "data/constants/model.pt",
        "data/aotinductor/model/model.so",
        "extra/module_info.json",
    ],
)
def test_no_pickle_and_no_native_code_is_read(info, tmp_path, member):
    """Plant a member where torch would read it, with a valid digest, as somebody with access to the folder could."""
    planted = tmp_path / "executed"
    root, members = members_of(info)
    plant(info, {**members, f"{root}/{member}": pickle.dumps(Touch(planted))})
    with pytest.raises(
        ModelDamagedError, match=f"program.pt2 has '{root}/{member}', which fd.save_model does not write"
    ):
        load_model("iris")
    assert not planted.exists()
    if member == "data/sample_inputs/model.pt":
        runs_in_torch(info, planted)


@pytest.mark.parametrize("name", ["tensor_0", "opaque_obj_0", "custom_obj_0"])
def test_no_constant_is_read_as_a_pickle(info, tmp_path, name):
    planted = tmp_path / "executed"
    root, members = members_of(info)
    payload = {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    config = f"{root}/data/constants/model_constants_config.json"
    members |= {config: json.dumps({"config": {"evil": payload}}).encode()}
    plant(info, {**members, f"{root}/data/constants/{name}": pickle.dumps(Touch(planted))})
    with pytest.raises(
        ModelDamagedError, match="which fd.save_model does not write, and loading it could run any code"
    ):
        load_model("iris")
    assert not planted.exists()


def test_no_pickle_is_read_in_the_layout_of_torch_2_7(info, tmp_path):
    planted = tmp_path / "executed"
    root, members = members_of(info)
    evil = {f"serialized_{name}.pt": pickle.dumps(Touch(planted)) for name in ("state_dict", "constants")}
    program = {"serialized_exported_program.json": members[f"{root}/models/model.json"], "version": b"8.15"}
    plant(info, {**program, **evil, "serialized_example_inputs.pt": b""})
    with pytest.raises(ModelDamagedError, match="which fd.save_model does not write"):
        load_model("iris")
    assert not planted.exists()
    runs_in_torch(info, planted)


def test_no_pickle_is_read_that_only_the_reader_of_torch_finds(info, tmp_path):
    """Two archives in one file: Python reads the last one, and torch the one at the offset that the last one names."""
    planted = tmp_path / "executed"
    root, members = members_of(info)
    inputs, filler, evil = f"{root}/data/sample_inputs/model.pt", f"{root}/.data/filler", pickle.dumps(Touch(planted))
    archives = [archive({**members, inputs: evil, filler: b""}), archive({**members, inputs: b"", filler: evil})]
    replace(info, PROGRAM, b"".join(archives))
    assert load_model("iris")(torch.ones(1, 4)).shape == (1, 2)
    assert not planted.exists()
    runs_in_torch(info, planted)


@pytest.mark.parametrize("name", ["weights.safetensors", PROGRAM])
def test_a_pickle_in_place_of_a_file_is_not_read(info, tmp_path, name):
    planted = tmp_path / "executed"
    replace(info, name, pickle.dumps(Touch(planted)))
    with pytest.raises(ModelError, match=r"^iris:1 (cannot be loaded|is damaged): (?!.*another content)"):
        load_model("iris")
    assert not planted.exists()


def test_parameters_of_another_model_are_named(info):
    replace(info, "weights.safetensors", save({"bias": torch.ones(2)}))
    with pytest.raises(ModelError, match=r"iris:1 cannot be loaded: KeyError: 'weight'. Save the model again"):
        load_model("iris")


def members_of(info):
    """Return the name of the archive's root folder, and the members of the archive."""
    with zipfile.ZipFile(info.folder / PROGRAM) as found:
        members = {one.filename: found.read(one) for one in found.infolist()}
    return next(iter(members)).partition("/")[0], members


def archive(members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as found:
        for name, data in members.items():
            found.writestr(name, data)
    return content.getvalue()


def plant(info, members):
    replace(info, PROGRAM, archive(members))


def replace(info, name, content):
    """Replace a file of a version, with a valid digest, as somebody with access to the folder could."""
    record = json.loads((info.folder / "model.json").read_text())
    record["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write(info.folder / name, content)
    write(info.folder / "model.json", json.dumps(record).encode())


def write(path, content):
    path.chmod(0o644)
    path.write_bytes(content)


def runs_in_torch(info, planted):
    """Check that torch itself would run the pickle, so that the test can fail."""
    with pytest.raises(Exception):  # noqa: B017 - what torch makes of it
        torch.export.load(info.folder / PROGRAM)
    assert planted.exists()
