"""Tests of ready plans to split layers. Stand-ins have the attributes of Hugging Face's models."""

from types import SimpleNamespace

import pytest
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.ready_plans import ready_plan
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

PLAN = {"layers.*.up": "colwise", "layers.*.down": "rowwise", "layers.*.missing": "no such style"}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)


class Base(nn.Module):
    """A base model, which publishes its plan in its configuration."""

    def __init__(self, plan=PLAN, **config):
        super().__init__()
        self.config = SimpleNamespace(base_model_tp_plan=plan, **config)
        self.embed_tokens = nn.Embedding(20, 8)
        self.layers = nn.ModuleList([Layer(), Layer()])

    @property
    def base_model(self):
        return self


class Causal(nn.Module):
    """A model with a head, which has collected the plans of its parts."""

    def __init__(self):
        super().__init__()
        self.model = Base()
        self.config = self.model.config
        self.lm_head = nn.Linear(8, 20, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight
        self._tp_plan = {"lm_head": "colwise_gather_output", "model.embed_tokens": "embedding_rowwise"}
        self._tp_plan |= {f"model.{name}": style for name, style in PLAN.items()}


def names(plan):
    return {name: type(style) for name, style in plan.items()}


LAYERS = {
    **{f"layers.{number}.up": ColwiseParallel for number in (0, 1)},
    **{f"layers.{number}.down": RowwiseParallel for number in (0, 1)},
}


def test_a_base_model_has_the_plan_of_its_configuration():
    assert names(ready_plan(Base(), 2)) == LAYERS


def test_layers_with_whole_inputs_and_outputs_stay_whole():
    assert names(ready_plan(Causal(), 2)) == {f"model.{name}": style for name, style in LAYERS.items()}


def test_a_published_plan_is_found_inside_a_model():
    assert names(ready_plan(nn.ModuleDict({"inner": Base()}), 2)) == {
        f"inner.{name}": style for name, style in LAYERS.items()
    }


def test_the_layers_of_torchs_transformers_are_split():
    model = nn.ModuleDict({"encoder": nn.TransformerEncoderLayer(8, 2)})
    assert names(ready_plan(model, 2)) == {"encoder.linear1": ColwiseParallel, "encoder.linear2": RowwiseParallel}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "there is no ready plan to split the layers of a Linear; give plan="),
        (Base({}), "there is no ready plan to split the layers of a Base"),
        (Base({"layers.*.up": "packed"}), r"has the style 'packed' for layers.0.up, which torch does not have; give a"),
        (Base(num_attention_heads=4, num_key_value_heads=3), "the Base has num_key_value_heads=3, which cannot be"),
    ],
)
def test_models_without_a_plan_for_these_ranks_are_named(model, message):
    with pytest.raises(UsageError, match=message):
        ready_plan(model, 2)
