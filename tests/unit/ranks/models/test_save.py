"""``fd.save_model`` exports a model, describes it, and stores no pickle."""

import json
import pickletools
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from farandole.exceptions import ModelError, UsageError
from farandole.models.store import verify
from farandole.ranks import run
from farandole.ranks.models.save import _copy, save_model
from farandole.runs.store import RunStore
from farandole.serving.runtimes import load
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


def loaded(info):
    program = torch.export.load(info.folder / "program.pt2")
    weights = load_file(info.folder / "weights.safetensors")
    kinds = {
        name: nn.Parameter if isinstance(old, nn.Parameter) else torch.clone for name, old in program.state_dict.items()
    }
    program.state_dict.update({name: kind(weights[name]) for name, kind in kinds.items()})
    return program.module()


def test_the_exported_program_computes_the_same_for_any_batch(model_store):
    model = Recurrent()
    assert (
        save_model(model, "typhoon", example=torch.randn(1, 8, 5), metrics={"error": torch.tensor(0.5)}) == "typhoon:1"
    )
    info = model_store.find("typhoon")
    verify(info)
    assert [str(one) for one in (*info.inputs, *info.outputs)] == ["tracks: FP32 [-1, 8, 5]", "output: FP32 [-1, 2]"]
    assert (info.metrics, info.versions["torch"]) == ({"error": 0.5}, torch.__version__)
    for rows in (1, 2, 7):
        tracks = torch.randn(rows, 8, 5)
        torch.testing.assert_close(loaded(info)(tracks=tracks), model(tracks))
    assert model.training


def test_no_file_is_a_pickle(model_store):
    save_model(Recurrent(), "typhoon", example=torch.randn(2, 8, 5))
    folder = model_store.find("typhoon").folder
    with zipfile.ZipFile(folder / "program.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in contents.items():
        assert not is_pickle(content), name
    # The parameters are only in the file of safetensors.
    assert [content for name, content in contents.items() if name.endswith("/data/weights/weight_0")] == [b""]


def is_pickle(content):
    try:
        return bool(content) and content[:1] == b"\x80" and bool(list(pickletools.genops(content)))
    except ValueError:
        return False


def test_several_inputs_and_outputs_keep_their_names(model_store):
    save_model(TwoInputs(), "pair", example={"first": torch.ones(3, 2), "second": torch.zeros(3, 2)})
    info = model_store.find("pair")
    assert [str(one) for one in info.inputs] == ["first: FP32 [-1, 2]", "second: FP32 [-1, 2]"]
    assert [str(one) for one in info.outputs] == ["sum: FP32 [-1, 2]", "larger: BOOL [-1, 2]"]
    request = json.loads((info.folder / "example.json").read_text())
    assert request["inputs"][0] == {"name": "first", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}


def forwards(function):
    """Return a model that computes a function."""

    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    return Model()


MIXED = {
    "the mean of the rows": lambda x: x - x.mean(0),
    "the rows before": lambda x: x.cumsum(0),
    "the similarity of rows": lambda x: x @ x.T,
    "whether another row is larger": lambda x: x[:, 0] < x[:, 0].max(),
    "the columns of the first row": lambda x: x[:, x[0] > 0],
    "rows of another order": lambda x: x.flip(0),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("rows", [1, 3])
def test_requests_are_not_computed_together_if_rows_depend_on_each_other(model_store, name, rows):
    save_model(forwards(MIXED[name]), "mixed", example=torch.arange(rows * 4.0).reshape(rows, 4))
    info = model_store.find("mixed")
    assert [one.shape[0] for one in (*info.inputs, *info.outputs)] == [rows, rows]


def test_requests_are_not_computed_together_if_the_batch_is_another_dimension(model_store):
    class WithState(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 3, batch_first=True)

        def forward(self, x):
            found, (hidden, _) = self.lstm(x)
            return found, hidden

    save_model(WithState(), "state", example=torch.randn(2, 8, 5))
    info = model_store.find("state")
    assert [str(one) for one in info.inputs] == ["x: FP32 [2, 8, 5]"]
    assert [str(one) for one in info.outputs] == ["output_0: FP32 [2, 8, 3]", "output_1: FP32 [1, 2, 3]"]


def test_requests_are_not_computed_together_if_the_first_dimension_is_the_time(model_store):
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 3)

        def forward(self, x):
            return self.lstm(x)[0]

    save_model(TimeFirst(), "time", example=torch.randn(8, 2, 5))
    assert [str(one) for one in model_store.find("time").outputs] == ["output: FP32 [8, 2, 3]"]


ROWS = {
    "indices": (nn.Embedding(10, 4), torch.tensor([[1, 2], [3, 9]])),
    "one index": (nn.Embedding(10, 4), torch.tensor([9])),
    "numbers of half the precision": (nn.Linear(64, 64).half(), torch.randn(3, 64).half()),
    "inputs that change": (forwards(lambda x: x.add_(1) * 2), torch.randn(2, 3)),
    "flags": (forwards(lambda x: x.logical_not()), torch.tensor([[True, False]])),
    "values that are not finite": (forwards(lambda x: (x - 1).log()), torch.tensor([[0.0, 1.0, 3.0]])),
    "a batch norm and convolutions": (nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)), torch.randn(2, 1, 8, 8)),
}


@pytest.mark.parametrize("name", ROWS)
def test_requests_are_computed_together_if_each_row_is_computed_alone(model_store, name):
    model, example = ROWS[name]
    before = example.clone()
    save_model(model, "rows", example=example)
    assert example.equal(before)
    info = model_store.find("rows")
    assert [one.shape[0] for one in (*info.inputs, *info.outputs)] == [-1, -1]


def test_a_model_for_one_size_of_batch_keeps_it(model_store):
    model = forwards(lambda x: x.reshape(3, 4) @ torch.ones(4, 1))
    example = torch.randn(3, 4)
    save_model(model, "fixed", example=example)
    info = model_store.find("fixed")
    assert [str(one) for one in info.inputs] == ["x: FP32 [3, 4]"]
    runtime = load(info)
    np.testing.assert_allclose(runtime.compute({"x": example.numpy()})["output"], model(example), rtol=1e-6)
    runtime.close()


def test_a_model_without_an_example_has_only_parameters(model_store):
    save_model(nn.Linear(2, 2), "plain")
    info = model_store.find("plain")
    assert (set(info.files), info.inputs) == ({"weights.safetensors"}, ())


def test_parameters_that_share_memory_are_saved(model_store):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    save_model(model, "tied", example=torch.randn(2, 4))
    x = torch.randn(5, 4)
    torch.testing.assert_close(loaded(model_store.find("tied"))(input=x), model(x))
    copied = _copy(model)
    assert copied[1].weight is copied[0].weight is not model[0].weight


def test_parameters_are_not_copied_on_their_device(model_store):
    """Copies of the parameters and buffers of a large model would exhaust the memory of a GPU."""

    class OnGpu(nn.Parameter):
        def __deepcopy__(self, memo):
            raise MemoryError("the memory of the GPU is exhausted")

    model = nn.BatchNorm1d(4)
    model.weight = OnGpu(torch.ones(4), requires_grad=False)
    model.running_mean = torch.full((4,), 2.0, requires_grad=True) * 1.5  # only a leaf could be copied deeply
    save_model(model, "large")
    weights = load_file(model_store.find("large").folder / "weights.safetensors")
    assert (weights["weight"].tolist(), weights["running_mean"].tolist()) == ([1.0] * 4, [3.0] * 4)


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
def test_an_example_that_does_not_match_is_refused(model_store, example, message):
    with pytest.raises(UsageError, match=message):
        save_model(nn.Linear(4, 2), "iris", example=example)
    assert model_store.names() == []


def test_a_model_that_cannot_be_exported_is_named_with_the_remedy(model_store):
    branches = forwards(lambda x: x + 1 if x.sum().item() > 0 else x - 1)
    with pytest.raises(ModelError, match=r"cannot be exported: .*Save it without `example`"):
        save_model(branches, "branches", example=torch.ones(2, 2))
    assert model_store.names() == []


OPERATORS = {
    "aten.kthvalue": lambda x: x.kthvalue(1)[0],
    "aten.histc.default": lambda x: x.histc(bins=4),
    "prims.bessel_j0": torch.special.bessel_j0,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_that_has_no_form_in_onnx_is_named(model_store, operator):
    with pytest.raises(
        ModelError, match=rf"cannot be exported to ONNX: .*\b{operator}\b.* Save it without `onnx=True`"
    ):
        save_model(forwards(OPERATORS[operator]), "iris", example=torch.rand(2, 4), onnx=True)
    assert model_store.names() == []
    save_model(forwards(OPERATORS[operator]), "iris", example=torch.rand(2, 4))


FULL = """
import resource, signal
import torch
from farandole.exceptions import ModelError
from farandole.models import folders
from farandole.ranks.models.save import save_model
from torch import nn

make_folders = folders.make_folders
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save(limit, model, **options):
    def limited(folder):
        # Files are limited from the begin of the writing on, because the export of a model writes files, too.
        make_folders(folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    folders.make_folders = limited
    try:
        print(save_model(model, "iris", **options))
    except ModelError as exc:
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

save(1000, nn.Linear(400, 2))
save(1000, nn.Linear(4, 2), example=torch.ones(1, 4))
# The file has the 64,000 bytes of the parameters, too, and more than the other files for the layers.
save(65_000, nn.Sequential(nn.Linear(8000, 2), *[nn.ReLU()] * 30), example=torch.ones(1, 8000), onnx=True)
"""


@pytest.mark.release
def test_a_full_disk_is_named_and_leaves_nothing(model_store):
    """The limits are reached by the files of the parameters, of the program and of ONNX."""
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert re.search(r"iris could not be saved in .*: .*File too large.*\. Nothing was stored; make room", line)
    assert list((model_store.folder / "iris").iterdir()) == []


def test_a_model_has_the_commit_at_the_start_of_its_run(model_store, tmp_path, monkeypatch):
    for words in ("init -q", "-c user.name=t -c user.email=t@t commit -q --allow-empty -m one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    begun = RunStore(tmp_path / "runs").create(code="x", backend="none", size=1, workers=["w"], cwd=tmp_path)
    begun.let_go()
    monkeypatch.setattr(run.current(), "folder", begun.folder)
    save_model(nn.Linear(1, 1), "iris")
    assert model_store.find("iris").git.removesuffix("-dirty") == begun.info.git["commit"]
    # The folder of the run may be on another machine.
    monkeypatch.setattr(run.current(), "folder", tmp_path / "elsewhere")
    save_model(nn.Linear(1, 1), "iris")
    assert model_store.find("iris").git == ""


def test_results_must_be_tensors(model_store):
    class Text(nn.Module):
        def forward(self, x):
            return {"label": "a"}

    with pytest.raises(UsageError, match="returns a str as 'label'"):
        save_model(Text(), "text", example=torch.ones(1))


@pytest.mark.parametrize("metrics", [{"a": "x"}, {"a": float("nan")}, {"a": torch.ones(2)}])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_metrics_are_finite_numbers_on_all_ranks(model_store, metrics, rank, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", rank)
    with pytest.raises(UsageError, match="metrics are finite numbers"):
        save_model(nn.Linear(1, 1), "iris", metrics=metrics)


@pytest.mark.parametrize("labels", ["ab", ["a", "a"], ["a", ""], ["a", 1]])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_labels_are_different_texts_on_all_ranks(model_store, labels, rank, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", rank)
    with pytest.raises(UsageError, match="must be a list of different texts"):
        save_model(nn.Linear(1, 1), "iris", labels=labels)


def test_labels_are_stored_in_their_order(model_store):
    save_model(nn.Linear(1, 2), "iris", example=torch.ones(1, 1), labels=["no", "yes"])
    assert model_store.find("iris:1").labels == ("no", "yes")


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_group_that_does_not_exist_is_refused_on_all_ranks(model_store, rank, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", rank)
    with pytest.raises(UsageError, match="there is no group 'nobodys-group' here"):
        save_model(nn.Linear(1, 1), "nobodys-group/iris")


def test_what_describes_the_data_becomes_text(model_store):
    save_model(nn.Linear(1, 1), "iris", data=20261128)
    assert model_store.find("iris").data == "20261128"


def test_other_ranks_save_nothing(model_store, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", "1")
    assert save_model(nn.Linear(1, 1), "iris") is None
    assert model_store.names() == []


def test_only_modules_are_saved(model_store):
    with pytest.raises(UsageError, match=r"saves a torch.nn.Module, not a str"):
        save_model("iris", "iris")
