"""Tests of how a model is cut into stages.

PYTEST_DONT_REWRITE: a model here has an assertion, which must stay as Python compiles it.
"""

import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.deferred import Materializer
from farandole.ranks.training.pipeline.stages import Stage, shared_parameters, stages_of, subtree
from torch import nn


class Block(nn.Module):
    """Its code depends on values, which is allowed inside a stage."""

    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, mask=None):
        if x.sum() > 1e9:
            raise ValueError
        x = self.linear(x)
        return x if mask is None else x * mask


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.positions = nn.Parameter(torch.randn(6, 4))
        self.transformer = nn.ModuleDict({"blocks": nn.ModuleList(Block() for _ in range(4)), "drop": nn.Dropout(0.5)})
        self.head = nn.Linear(4, 9)
        self.register_buffer("causal", torch.ones(6, 1), persistent=False)

    def forward(self, x, scale=2.0):
        length = x.size(1)
        assert length <= 6, "too long"
        mask = self.causal[:length]
        first = self.embedding(x) + self.positions[torch.arange(length, device=x.device)]
        hidden = nn.functional.dropout(first, 0.5, training=self.training)
        for block in self.transformer.blocks:
            hidden = block(hidden, mask)
        return self.head(hidden + first) * scale


def modules(model, split):
    found = stages_of(model, split)
    materialize = Materializer(model)
    return [
        Stage(subtree(model, [modes], materialize), modes, is_last=index == len(found) - 1)
        for index, modes in enumerate(found)
    ]


def through(stages, *inputs):
    received = ()
    for stage in stages:
        result = stage(*received, **{f"input_{index}": value for index, value in enumerate(inputs)})
        received = result
    return result


SPLIT = ["transformer.blocks.2", "head", "transformer.blocks.1"]


def test_stages_compute_what_the_model_computes():
    model = Model().eval()
    stages = modules(model, SPLIT)
    x = torch.randint(9, (3, 5))
    torch.testing.assert_close(through(stages, x), model(x), rtol=0, atol=0)
    torch.testing.assert_close(through(stages, x[:1, :2]), model(x[:1, :2]), rtol=0, atol=0)


def test_gradients_pass_all_stages():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 1))
    x = torch.randn(5, 2)
    through(modules(model, ["2", "3"]), x).sum().backward()
    own = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for gradient, parameter in zip(own, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=0)


def test_each_stage_has_its_modules_under_their_names():
    model = Model()
    names = [sorted(name for name, _ in stage.module.named_parameters()) for stage in modules(model, SPLIT)]
    assert names == [
        ["embedding.weight", "positions", "transformer.blocks.0.linear.bias", "transformer.blocks.0.linear.weight"],
        ["transformer.blocks.1.linear.bias", "transformer.blocks.1.linear.weight"],
        [f"transformer.blocks.{index}.linear.{name}" for index in (2, 3) for name in ("bias", "weight")],
        ["head.bias", "head.weight"],
    ]
    assert sorted(name for names in names for name in names) == sorted(name for name, _ in model.named_parameters())


def test_what_depends_on_the_inputs_alone_is_not_sent():
    _, second, third, last = stages_of(Model(), SPLIT)
    assert second[True].handed == ("add", "transformer_blocks_1")
    assert third[True].handed == ("add_1",)
    assert last[True].handed == ()
    assert "causal" in second[True].targets


def test_the_mode_of_the_model_counts():
    model = Model()
    stages = modules(model, ["transformer.blocks.1"])
    x = torch.randint(9, (3, 5))
    for stage in stages:
        stage.module.eval()
    torch.testing.assert_close(through(stages, x), through(stages, x), rtol=0, atol=0)
    for stage in stages:
        stage.module.train()
    assert not torch.equal(through(stages, x), through(stages, x))
    assert model.training
    assert all(module.training for module in model.modules())


def test_a_frozen_stage_hands_over_what_gradients_reach():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).requires_grad_(False)
    first, _ = modules(model, ["1"])
    [handed] = first(input_0=torch.zeros(5, 2))
    assert handed.requires_grad


def test_only_the_stage_of_a_deferred_model_gets_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    _, second = stages_of(model, ["1"])
    module = subtree(model, [second], Materializer(model))
    assert not any(parameter.is_meta for parameter in module.parameters())
    assert model[0].weight.is_meta


class Noisy(nn.Module):
    """A model with random numbers, and with a mask that is made by changing a tensor."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        noise = torch.rand(x.shape[0], 1)
        mask = torch.zeros(x.shape[1], device=x.device)
        mask.fill_(3.0).sub_(1.0)
        x = self.blocks[0](x + noise)
        return self.blocks[1](x) * mask - noise


def test_random_numbers_are_sent_and_what_changes_a_tensor_is_computed_again():
    model = Noisy()
    x = torch.rand(3, 4)
    torch.manual_seed(1)
    expected = model(x)
    stages = modules(model, ["blocks.1"])
    assert stages[0].handed == ("rand", "blocks_0")
    torch.manual_seed(1)
    torch.testing.assert_close(through(stages, x), expected, rtol=0, atol=0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.block = Block()
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.block(self.embedding(x)))


class Loops(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for _ in range(x.shape[0]):
            x = self.blocks[0](x)
        if x.sum() > 0:
            x = self.blocks[1](x)
        return x


class Branches(Loops):
    def forward(self, x):
        x = self.blocks[0](x)
        return self.blocks[1](x) if x.sum() > 0 else x


class ReturnsDict(Loops):
    def forward(self, x):
        return {"logits": self.blocks[1](self.blocks[0](x))}


class NoInputs(Loops):
    def forward(self, x=None):
        return x


@pytest.mark.parametrize(
    ("model", "split", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), ["1", "2"], "stage 1 of 3 has no parameters"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), ["0"], "stage 0 of 2 has no parameters"),
        (Loops(), ["blocks.1"], r"forward\(\) of Loops cannot be cut, .*interpreted as an integer"),
        (Branches(), ["blocks.1"], r"forward\(\) of Branches cannot be cut, .*control flow"),
        (ReturnsDict(), ["blocks.1"], "the model returns a dict, and a pipeline needs"),
        (NoInputs(), ["blocks.1"], "NoInputs.forward must have one positional argument or more without a default"),
        (Model(), ["transformer.blocks"], "does not call 'transformer.blocks'; name a module that it calls"),
    ],
)
def test_a_model_that_cannot_be_cut_is_named(model, split, message):
    with pytest.raises(UsageError, match=message):
        shared_parameters(model, stages_of(model, split))


def test_parameters_of_several_stages_are_found():
    model = Tied()
    assert shared_parameters(model, stages_of(model, ["block", "head"])) == [{0: "embedding.weight", 2: "head.weight"}]
    model.head.weight = nn.Parameter(torch.zeros(9, 4))
    assert shared_parameters(model, stages_of(model, ["block", "head"])) == []
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[2].weight = model[1].weight
    assert shared_parameters(model, stages_of(model, ["1"])) == []
