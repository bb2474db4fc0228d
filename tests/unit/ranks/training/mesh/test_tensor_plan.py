"""Tests of plans to split layers."""

import pytest
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.tensor_plan import styles
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 6)) for _ in range(2))
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.embedding.weight


def test_a_pattern_names_modules_and_a_later_one_wins():
    model, up, norm, other = Model(), ColwiseParallel(), SequenceParallel(), RowwiseParallel()
    found = styles(model, {"blocks.*.0": up, "blocks.*.1": norm, "blocks.1.0": other}, 2)
    assert found == {
        model.blocks[0][0]: up,
        model.blocks[1][0]: other,
        model.blocks[0][1]: norm,
        model.blocks[1][1]: norm,
    }


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([], r"the plan is \[\]; it must be a dict"),
        ({}, r"the plan is \{\}; it must be a dict"),
        ({"blocks.*.4": ColwiseParallel()}, r"names the module 'blocks.\*.4', and the model has no such module"),
        ({"blocks.*.0": "colwise"}, r"the plan has 'colwise' for 'blocks.\*.0'; it must be a style from"),
        ({"blocks.*.0": ColwiseParallel}, r"; it must be a style from torch.distributed.tensor.parallel, such as"),
        ({"head": ColwiseParallel()}, "the plan splits head, which shares a parameter with another module; leave it"),
        ({"embedding": RowwiseParallel()}, "the plan splits embedding, which shares a parameter"),
        ({"blocks.0.1": RowwiseParallel()}, "splits blocks.0.1, a LayerNorm; RowwiseParallel splits nn.Linear and"),
        ({"blocks.*.0": ColwiseParallel()}, "out_features=8 cannot be divided by 3; change the layer, the plan or"),
        ({"blocks.*.2": RowwiseParallel()}, "in_features=8 cannot be divided by 3"),
        (None, "there is no ready plan to split the layers of a Model"),
    ],
)
def test_plans_that_do_not_fit_are_named(plan, message):
    with pytest.raises(UsageError, match=message):
        styles(Model(), plan, 3)
