"""`Run.save_full` writes a model of a checkpoint to one file of safetensors, without the whole model in memory."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from farandole import checkpoint
from farandole import state as make_state
from farandole.exceptions import ModelError, UsageError
from farandole.ranks.checkpoints import files
from farandole.runs.checkpoints import full_model
from farandole.runs.checkpoints.full_model import DTYPES
from farandole.runs.checkpoints.intact import described
from farandole.runs.run import Run
from farandole.runs.store import RunStore
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn


class Assorted(nn.Module):
    """A model with tensors of all dtypes, shapes without elements or dimensions, and a tied parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.tied = self.weight
        for dtype, name in DTYPES.items():
            self.register_buffer(name, torch.arange(5).to(dtype))
        self.register_buffer("none", torch.empty(0, 4))
        self.register_buffer("one", torch.tensor(3.0))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return RunStore(tmp_path / "runs").create(code="pass", backend="torch", size=1, workers=["w0"], name="", cwd="/")


def train(run: Run, *parts: nn.Module, **named: nn.Module) -> None:
    """Write the checkpoints of steps 1 and 2."""
    state = make_state(*parts, step=0, **named)
    made = checkpoint(state, every="1h", folder=run.folder / "checkpoints")
    for step in (1, 2):
        state.step = step
        made.save()


def test_the_newest_model_is_written(run: Run, tmp_path: Path) -> None:
    model, path = Assorted(), tmp_path / "model.safetensors"
    train(run, model)
    assert run.save_full(path) == path
    found = load_file(path)
    assert found.keys() == model.state_dict().keys()
    for name, expected in model.state_dict().items():
        assert (found[name].dtype, found[name].shape) == (expected.dtype, expected.shape)
        assert torch.equal(_bytes(found[name]), _bytes(expected))
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [path.name]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def test_another_model_and_another_step_can_be_chosen(run: Run, tmp_path: Path) -> None:
    model, ema = nn.Linear(2, 2), nn.Linear(3, 1)
    state = make_state(model, ema=ema, step=0)
    made = checkpoint(state, every="1h", folder=run.folder / "checkpoints")
    for step in (1, 2):
        nn.init.constant_(ema.weight, step)
        state.step = step
        made.save()
    for step in (1, 2):
        run.save_full(tmp_path / "ema", name="ema", step=step)
        assert load_file(tmp_path / "ema")["weight"].tolist() == [[step] * 3]


def test_what_is_missing_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"run {run.id} has no checkpoint in its folder; call fd.checkpoint"):
        run.save_full(tmp_path / "model")
    train(run, nn.Linear(2, 2), ema=nn.Linear(2, 2))
    with pytest.raises(UsageError, match="has no checkpoint of step 7; it has those of the steps 1, 2"):
        run.save_full(tmp_path / "model", step=7)
    with pytest.raises(UsageError, match="step-2 has no model 'net'; it has 'ema', 'model'"):
        run.save_full(tmp_path / "model", name="net")


def test_a_state_without_tensors_has_no_model(run: Run, tmp_path: Path) -> None:
    train(run)
    with pytest.raises(UsageError, match="has no model 'model'; it has nothing with tensors"):
        run.save_full(tmp_path / "model")


def test_a_dtype_that_the_format_lacks_is_named(run: Run, tmp_path: Path) -> None:
    train(run, nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.complex128))]))
    with pytest.raises(UsageError, match="has no torch.complex128, the dtype of '0'"):
        run.save_full(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def _damage(step: Path) -> None:
    next(step.glob("*.distcp")).write_bytes(b"x")


def _open_to_others(step: Path) -> None:
    step.chmod(0o777)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_written(run: Run, tmp_path: Path) -> None:
    model, path = nn.Linear(2, 2), tmp_path / "model"
    train(run, model)
    _damage(run.folder / "checkpoints" / "step-2")
    with pytest.warns(
        UserWarning, match=r"step-2 is damaged: .*distcp has changed .*\. The model of the checkpoint befo"
    ):
        run.save_full(path)
    assert torch.equal(load_file(path)["weight"], model.weight)
    with pytest.raises(ModelError, match=r"step-2 is damaged: .*distcp has changed .*; choose another one with step="):
        run.save_full(path, step=2)
    _damage(run.folder / "checkpoints" / "step-1")
    with (
        pytest.warns(UserWarning, match="step-2 is damaged"),
        pytest.raises(ModelError, match=r"step-1 is damaged: .*; choose another one with step="),
    ):
        run.save_full(path)


def test_a_checkpoint_that_others_may_have_written_is_refused(run: Run, tmp_path: Path) -> None:
    train(run, nn.Linear(2, 2))
    _open_to_others(run.folder / "checkpoints" / "step-2")
    with pytest.raises(UsageError, match="is not loaded, because other users may have written it"):
        run.save_full(tmp_path / "model")
    run.save_full(tmp_path / "model", step=1)


def test_a_checkpoint_that_is_deleted_meanwhile_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(run, nn.Linear(2, 2))
    write = full_model._header

    def delete(entries: Any) -> bytes:
        shutil.rmtree(run.folder / "checkpoints")
        return write(entries)

    monkeypatch.setattr(full_model, "_header", delete)
    with pytest.raises(ModelError, match=r"step-2 can no longer be read: No such file .*; if its run has deleted it"):
        run.save_full(tmp_path / "model")
    assert not list(tmp_path.glob("*model*"))


def test_the_stages_of_a_pipeline_make_one_model(run: Run, tmp_path: Path) -> None:
    model = nn.ModuleDict({"tied": nn.Linear(2, 2), "head": nn.Linear(2, 1)})
    values = {name: value.detach() for name, value in model.state_dict().items()}
    tensors = {f"stages/0/parts/model/{name}": value for name, value in values.items() if "tied" in name}
    tensors |= {f"stages/1/parts/model/{name}": value for name, value in values.items()}
    tensors |= {"stages/1/parts/optimizer/state/0/step": torch.tensor(1.0)}
    content = files.Content(step=3, state={"stages": []}, rngs=[{}], seed=0)
    new = files.begin(run.folder / "checkpoints", 3)
    files.write_outline(new, content, content.state)
    files.store(new, tensors)
    files.complete(new, content, {path.name: described(path) for path in new.iterdir()})
    run.save_full(tmp_path / "model")
    found = load_file(tmp_path / "model")
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())
    with pytest.raises(UsageError, match="has no model 'ema'; it has 'model', 'optimizer'"):
        run.save_full(tmp_path / "model", name="ema")


def test_an_earlier_file_stays_if_the_new_one_cannot_be_written(run: Run, tmp_path: Path) -> None:
    train(run, nn.Linear(2, 2))
    with pytest.raises(ModelError, match="the model cannot be written to .*: No such file or directory"):
        run.save_full(tmp_path / "nowhere" / "model")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="the model cannot be written to .*: Is a directory"):
        run.save_full(tmp_path / "folder")
    assert not list(tmp_path.glob(".*.new"))


MEASURE = """
import resource, sys
from pathlib import Path
from farandole.runs.checkpoints.full_model import write_model

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

small, large, target = map(Path, sys.argv[1:])
write_model([small], "model", target)
before = most()
write_model([large], "model", target)
print(most() - before)
"""


def test_only_one_tensor_at_a_time_is_in_memory(run: Run, tmp_path: Path) -> None:
    tensor = 2**22
    for step, count in ((1, 1), (2, 24)):
        model = nn.ParameterList(nn.Parameter(torch.ones(tensor // 4)) for _ in range(count))
        checkpoint(make_state(model, step=step), every="1h", folder=run.folder / "checkpoints").save()
    paths = [run.folder / "checkpoints" / f"step-{step}" for step in (1, 2)]
    script = [sys.executable, "-c", MEASURE, *map(str, paths), str(tmp_path / "model")]
    printed = subprocess.run(script, check=True, capture_output=True, text=True, timeout=60).stdout
    assert int(printed) < 6 * tensor
    assert (tmp_path / "model").stat().st_size > 24 * tensor
