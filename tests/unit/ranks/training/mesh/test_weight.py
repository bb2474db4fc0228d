"""Tests of the weight of a rank's share, which scales what flows back into a sharded model."""

from dataclasses import dataclass

import pytest
import torch
from farandole.ranks.training.mesh.weight import output_weight
from torch import nn


class Pair(nn.Module):
    """A model whose output has a mapping, and a tensor without a gradient."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x):
        return {"score": self.linear(x), "argmax": x.argmax(1)}


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_gradients_are_scaled_until_the_weight_is_one(weight):
    model, x = Pair(), torch.ones(3, 2)
    scale = output_weight(model)
    for given in (weight, 1.0):
        scale.set(given)
        model.zero_grad()
        output = model(x)
        assert output["argmax"].tolist() == [0, 0, 0]
        torch.testing.assert_close(output["score"], model.linear(x))
        output["score"].sum().backward()
        torch.testing.assert_close(model.linear.weight.grad, torch.full((1, 2), 3.0 * given))


@dataclass(frozen=True)
class Output:
    scores: list[torch.Tensor]
    name: str = "pair"


class Structured(Pair):
    """A model whose output is of a class that torch does not know as a container, unlike FSDP."""

    def forward(self, x):
        return Output([self.linear(x)])


def test_tensors_in_a_dataclass_are_scaled():
    model = Structured()
    output_weight(model).set(2.0)
    output = model(torch.ones(3, 2))
    assert output.name == "pair"
    output.scores[0].sum().backward()
    torch.testing.assert_close(model.linear.weight.grad, torch.full((1, 2), 6.0))


def test_a_model_has_one_weight():
    # As if a cell runs again, while the loader of its first run has not ended.
    model = Pair()
    first, second = output_weight(model), output_weight(model)
    first.set(2.0)
    second.set(0.5)
    model(torch.ones(1, 2))["score"].sum().backward()
    torch.testing.assert_close(model.linear.weight.grad, torch.full((1, 2), 0.5))
    assert output_weight(Pair()) is not first
