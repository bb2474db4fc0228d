"""Tests of the modules whose parameters are gathered together."""

import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.units import check_parameters, check_ties, units
from torch import nn


class Block(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(300, 20)
        self.blocks = nn.ModuleList([Block(), Block(), nn.Identity()])
        self.head = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1))


def test_blocks_are_units_unless_they_are_very_small():
    model = Model()
    assert units(model, None) == [model.blocks[0], model.blocks[1], model.head[0]]


def test_many_equal_blocks_are_units():
    model = nn.Sequential(nn.Embedding(3_000, 20), *(nn.Linear(20, 20) for _ in range(150)), nn.Linear(20, 1))
    assert units(model, None) == list(model)[:-1]


def test_a_block_in_two_lists_is_one_unit():
    model = nn.Module()
    model.blocks = nn.ModuleList([Block(), Block()])
    model.all = nn.Sequential(*model.blocks)
    assert units(model, None) == list(model.blocks)


def test_given_classes_are_units_with_the_innermost_first():
    model = Model()
    found = units(model, [Block, nn.Linear])
    assert found.index(model.blocks[0].inner[0]) < found.index(model.blocks[0])
    assert {type(unit) for unit in found} == {Block, nn.Linear}


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        ([nn.Conv2d], "wrap names Conv2d, and the Model has no such module inside"),
        ([Model], "wrap names Model, and the Model has no such module inside"),
        (["Block"], r"wrap is \['Block'\]; it must be a list of classes of modules"),
        (Block, "wrap is <class .*Block'>; it must be a list of classes of modules"),
    ],
)
def test_classes_without_modules_are_named(wrap, message):
    with pytest.raises(UsageError, match=message):
        units(Model(), wrap)


def test_a_parameter_in_two_units_is_named():
    model = nn.Sequential(nn.Embedding(30, 20), nn.Linear(20, 20), nn.Linear(20, 30))
    model[2].weight = model[0].weight
    with pytest.raises(UsageError, match="0.weight and 2.weight are one parameter in two units"):
        check_ties(model, units(model, None))
    check_ties(model, [model[1]])


def test_a_parameter_without_dimensions_is_named():
    model = nn.Sequential(nn.Linear(2, 2))
    check_parameters(model, [])
    model[0].scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(UsageError, match="the parameter 0.scale has no dimension that a mesh could split"):
        check_parameters(model, [])


def test_a_parameter_in_another_order_is_named():
    model = nn.Sequential(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last)
    with pytest.raises(UsageError, match="0.weight are not in the order of its dimensions, .*torch.contiguous_format"):
        check_parameters(model, [])
    check_parameters(model.to(memory_format=torch.contiguous_format), [])


def test_two_dtypes_in_a_unit_are_named():
    model = nn.Sequential(nn.Linear(2, 2).bfloat16(), nn.Linear(2, 2))
    check_parameters(model, list(model))
    with pytest.raises(UsageError, match="0.weight is torch.bfloat16 and 1.weight is torch.float32, and those of a un"):
        check_parameters(model, [])
    model[0].requires_grad_(False)
    check_parameters(model, [])
