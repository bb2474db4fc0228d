"""Tests for the measurement of a model on a rank, in a real IPython shell."""

import json
from collections.abc import Iterator

import pytest
import torch
from farandole.ranks import context
from farandole.ranks.kernel import variables as kernel_variables
from farandole.ranks.preflight.model import fit, measure, predict
from farandole.ranks.training.pipeline.model import Pipeline
from farandole.ranks.training.sync.modes import PAYLOADS
from IPython.core.interactiveshell import InteractiveShell
from torch import nn


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The variables of the rank. It has a model with batch normalization and a batch."""
    monkeypatch.setenv("FARANDOLE_RANK", "0")
    monkeypatch.setenv("FARANDOLE_SIZE", "2")
    shell = InteractiveShell()
    monkeypatch.setattr(kernel_variables, "get_ipython", lambda: shell)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    shell.user_ns.update(net=net, x=torch.ones(6, 4))
    yield shell.user_ns
    shell.user_ns.clear()


def test_a_model_is_measured_and_stays_as_it_was(variables: dict[str, object]) -> None:
    net = variables["net"]
    assert isinstance(net, nn.Module)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = measure("net", "x")
    assert found["bytes"] == 4 * sum(one.numel() for one in net.parameters())
    assert 0 < found["forward"] < found["step"] < 10
    assert set(found["overheads"]) == set(PAYLOADS)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(one.grad is None for one in net.parameters())


@pytest.mark.parametrize("deferred", [False, True])
def test_the_memory_of_a_model_is_predicted(variables: dict[str, object], deferred: bool) -> None:
    with torch.device("meta" if deferred else "cpu"):
        variables["net"] = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    found = fit("net")
    size = 4 * (5 * 8 + 9 * 2)
    assert (found["parameters"], found["gradients"], found["optimizer"]) == (size, size, 2 * size)
    assert [(row["mesh"], row["ranks"], row["fits"]) for row in found["rows"]] == [
        ("{'data': 2}", 2, True),
        ("{'shard': 2}", 2, True),
    ]
    assert found["advice"] == "net fits on each rank without a mesh."
    json.dumps(found)


class Unused:
    """The runner of a pipeline, which is not run."""

    def step(self, inputs: object, target: torch.Tensor) -> torch.Tensor:
        return target

    def forward(self, inputs: object) -> object:
        return inputs


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "net is a int; --model needs a torch.nn.Module"),
        (nn.LazyLinear(2), "net has lazy modules, whose sizes"),
        (Pipeline(nn.Linear(2, 2), Unused(), microbatches=1, inputs=1), "net is a pipeline, of which each rank has a"),
    ],
)
def test_a_model_of_unknown_size_is_named(variables: dict[str, object], value: object, words: str) -> None:
    variables["net"] = value
    assert words in fit("net")["error"]


def test_the_steps_of_a_model_without_memory_are_not_timed(variables: dict[str, object]) -> None:
    with torch.device("meta"):
        variables["net"] = nn.Linear(4, 2)
    assert "net has no memory, because it was made in fd.deferred; leave out --batch" in measure("net", "x")["error"]


def test_only_parameters_with_gradients_count(variables: dict[str, object]) -> None:
    net = variables["net"]
    assert isinstance(net, nn.Sequential)
    net[0].requires_grad_(False)
    assert measure("net", "x")["bytes"] == 4 * (8 + 8 + 16 + 2)


@pytest.mark.parametrize("batch", [(torch.ones(3, 4), torch.zeros(3)), [torch.ones(3, 4)], {"input": torch.ones(3, 4)}])
def test_a_batch_is_what_a_loader_returns(variables: dict[str, object], batch: object) -> None:
    variables["x"] = batch
    assert "error" not in measure("net", "x")


def test_outputs_in_mappings_and_tuples_reach_the_backward_pass(variables: dict[str, object]) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> object:
            return {"first": self.first(x), "rest": (self.second(x), torch.ones(1, dtype=torch.long))}

    variables["net"] = Pair()
    assert measure("net", "x")["step"] > 0


@pytest.mark.parametrize(
    ("name", "value", "model", "words"),
    [
        ("net", nn.Linear(4, 2), "nte", "the ranks have no variable 'nte'; define it in a cell with `%%distributed`"),
        ("net", 3, "net", "net is a int; --model needs a torch.nn.Module"),
        ("net", nn.ReLU(), "net", "net has no parameters that require gradients"),
        ("x", torch.ones(6, 5), "net", "the model does not accept this batch: "),
        ("x", (), "net", "the model does not accept this batch: "),
    ],
)
def test_a_wrong_variable_is_named(
    variables: dict[str, object], name: str, value: object, model: str, words: str
) -> None:
    variables[name] = value
    assert words in measure(model, "x")["error"]


def test_an_output_without_gradients_is_named(variables: dict[str, object]) -> None:
    class Detached(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).detach()

    variables["net"] = Detached(4, 2)
    assert measure("net", "x")["error"].startswith("the output of the model has no tensor with gradients")


def test_the_rows_of_a_prediction_are_plain_values() -> None:
    figures = {"step": 0.05, "forward": 0.02, "all_reduce": 0.4, "latency": 0.0, "bytes": 4e6}
    rows = predict(figures, 3 * [dict.fromkeys(PAYLOADS, (0.0, 0.0, 0.0))])
    assert rows[0]["mode"] == 'sync="step"'
    assert rows[0]["step"] == pytest.approx(0.42)
    assert [row["chosen"] for row in rows].count(True) == 1


def test_the_copy_trains_on_the_device_of_the_rank(
    variables: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Observed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((self.training, self.weight.device.type, x.device.type))
            return super().forward(x)

    monkeypatch.setattr(context, "device", lambda: torch.device("meta"))
    net = variables["net"] = Observed(4, 2).eval()
    assert measure("net", "x")["bytes"] == 4 * (4 * 2 + 2)
    assert set(seen) == {(True, "meta", "meta")}
    assert not net.training
    assert net.weight.device.type == "cpu"
