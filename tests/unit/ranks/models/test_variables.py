"""The driver asks a rank to save a model that a variable of the user holds."""

import pytest
import torch
from farandole.ranks.models.variables import save_variable
from IPython.core.interactiveshell import InteractiveShell
from torch import nn

OPTIONS = {"git": "c0ffee", "metrics": {"accuracy": 0.5}, "data": "v1", "onnx": False}


@pytest.fixture(autouse=True)
def shell():
    shell = InteractiveShell.instance()
    shell.user_ns |= {"model": nn.Linear(4, 2), "x": torch.ones(1, 4), "wrong": torch.ones(1, 3)}
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(("example", "inputs"), [("", []), ("x", ["input: FP32 [-1, 4]"])])
def test_the_model_in_a_variable_is_saved(model_store, example, inputs):
    assert save_variable("model", "iris", "20261128-1", example, OPTIONS) == {"saved": "iris:1"}
    info = model_store.find("iris")
    assert (info.run, info.git, info.metrics, info.data) == ("20261128-1", "c0ffee", {"accuracy": 0.5}, "v1")
    assert [str(one) for one in info.inputs] == inputs


@pytest.mark.parametrize(
    ("model", "example", "reason"),
    [
        ("modle", "", "the ranks have no variable 'modle'"),
        ("model", "y", "the ranks have no variable 'y'"),
        ("x", "", "fd.save_model saves a torch.nn.Module, not a Tensor"),
        ("model", "wrong", "the model does not accept its example"),
    ],
)
def test_the_reason_is_returned_if_nothing_is_saved(model_store, model, example, reason):
    assert save_variable(model, "iris", "20261128-1", example, OPTIONS)["error"].startswith(reason)
    assert model_store.names() == []
