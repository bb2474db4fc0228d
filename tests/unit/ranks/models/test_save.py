"""``fd.save_model`` exports a model, describes it, and stores no pickle."""

import json
import pickletools
import zipfile

import pytest
import torch
from farandole.exceptions import ModelError, UsageError
from farandole.models.store import ModelStore, verify
from farandole.ranks.models.save import save_model
from safetensors.torch import load_file
from torch import nn


class Recurrent(nn.Module):
    """An LSTM with a buffer and a constant, for inputs of shape (n, time, 5)."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 16, batch_first=True)
        self.out = nn.Linear(16, 2)
        self.register_buffer("scale", torch.full((2,), 3.0))
        self.shift = torch.ones(2)

    def forward(self, tracks):
        return self.out(self.lstm(tracks)[0][:, -1]) * self.scale + self.shift


class TwoInputs(nn.Module):
    """Has two named inputs and two named outputs."""

    def forward(self, first, second):
        return {"sum": first + second, "larger": first > second}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path / "models"))
    return ModelStore()


def loaded(info):
    program = torch.export.load(info.folder / "program.pt2")
    weights = load_file(info.folder / "weights.safetensors")
    kinds = {
        name: nn.Parameter if isinstance(old, nn.Parameter) else torch.clone for name, old in program.state_dict.items()
    }
    program.state_dict.update({name: kind(weights[name]) for name, kind in kinds.items()})
    return program.module()


def test_the_exported_program_computes_the_same_for_any_batch(store):
    model = Recurrent()
    assert (
        save_model(model, "typhoon", example=torch.randn(1, 8, 5), metrics={"error": torch.tensor(0.5)}) == "typhoon:1"
    )
    info = store.find("typhoon")
    verify(info)
    assert [str(one) for one in (*info.inputs, *info.outputs)] == ["tracks: FP32 [-1, 8, 5]", "output: FP32 [-1, 2]"]
    assert (info.metrics, info.versions["torch"]) == ({"error": 0.5}, torch.__version__)
    for rows in (1, 2, 7):
        tracks = torch.randn(rows, 8, 5)
        torch.testing.assert_close(loaded(info)(tracks=tracks), model(tracks))
    assert model.training


def test_no_file_is_a_pickle(store):
    save_model(Recurrent(), "typhoon", example=torch.randn(2, 8, 5))
    folder = store.find("typhoon").folder
    with zipfile.ZipFile(folder / "program.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in contents.items():
        assert not is_pickle(content), name
    # The parameters are only in the file of safetensors.
    assert contents["program/data/weights/weight_0"] == b""


def is_pickle(content):
    try:
        return bool(content) and content[:1] == b"\x80" and bool(list(pickletools.genops(content)))
    except ValueError:
        return False


def test_several_inputs_and_outputs_keep_their_names(store):
    save_model(TwoInputs(), "pair", example={"first": torch.ones(3, 2), "second": torch.zeros(3, 2)})
    info = store.find("pair")
    assert [str(one) for one in info.inputs] == ["first: FP32 [-1, 2]", "second: FP32 [-1, 2]"]
    assert [str(one) for one in info.outputs] == ["sum: FP32 [-1, 2]", "larger: BOOL [-1, 2]"]
    request = json.loads((info.folder / "example.json").read_text())
    assert request["inputs"][0] == {"name": "first", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}


def test_a_model_for_one_size_of_batch_keeps_it(store):
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(3, 4) @ torch.ones(4, 1)

    save_model(Fixed(), "fixed", example=torch.randn(3, 4))
    assert [str(one) for one in store.find("fixed").inputs] == ["x: FP32 [3, 4]"]


def test_a_model_without_an_example_has_only_parameters(store):
    save_model(nn.Linear(2, 2), "plain")
    info = store.find("plain")
    assert (set(info.files), info.inputs) == ({"weights.safetensors"}, ())


def test_parameters_that_share_memory_are_saved(store):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    save_model(model, "tied", example=torch.randn(2, 4))
    x = torch.randn(5, 4)
    torch.testing.assert_close(loaded(store.find("tied"))(input=x), model(x))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.ones(2, 3), "does not accept its example: mat1 and mat2 shapes cannot be multiplied"),
        ((torch.ones(2, 4), torch.ones(2, 4)), "does not match the arguments of the model's forward"),
        ({"x": torch.ones(2, 4)}, "does not match the arguments of the model's forward"),
        ([[1.0, 2.0]], "the example has a list for 'input'"),
        (torch.ones(2, 4, dtype=torch.complex64), "'input' has the type torch.complex64"),
    ],
)
def test_an_example_that_does_not_match_is_refused(store, example, message):
    with pytest.raises(UsageError, match=message):
        save_model(nn.Linear(4, 2), "iris", example=example)
    assert store.names() == []


def test_a_model_that_cannot_be_exported_is_named_with_the_operator(store):
    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum().item() > 0 else x - 1

    with pytest.raises(ModelError, match=r"cannot be exported: .*Save it without `example`"):
        save_model(Branches(), "branches", example=torch.ones(2, 2))
    assert store.names() == []


def test_results_must_be_tensors(store):
    class Text(nn.Module):
        def forward(self, x):
            return {"label": "a"}

    with pytest.raises(UsageError, match="returns a str as 'label'"):
        save_model(Text(), "text", example=torch.ones(1))


@pytest.mark.parametrize("metrics", [{"a": "x"}, {"a": float("nan")}, {"a": torch.ones(2)}])
def test_metrics_are_finite_numbers(store, metrics):
    with pytest.raises((UsageError, RuntimeError), match="metrics are finite numbers|a Tensor with 2 elements"):
        save_model(nn.Linear(1, 1), "iris", metrics=metrics)


def test_other_ranks_save_nothing(store, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", "1")
    assert save_model(nn.Linear(1, 1), "iris") is None
    assert store.names() == []


def test_only_modules_are_saved(store):
    with pytest.raises(UsageError, match=r"saves a torch.nn.Module, not a str"):
        save_model("iris", "iris")
