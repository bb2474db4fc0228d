"""Ready plans to split layers: those of torch's transformer layers, and those that Hugging Face's models publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from farandole.exceptions import UsageError

PUBLISHED: dict[str, Callable[[], ParallelStyle]] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
"""The styles of Hugging Face's plans that split layers and that torch has.

Source: ``transformers/distributed/tensor_parallel.py``.
"""
WHOLE = (
    *("replicate", "colwise_gather_output", "colwise_rep", "rowwise_split_input", "rowwise_rep"),
    *("embedding_rowwise", "embedding_colwise"),
)
"""Styles with whole inputs and outputs, so that these layers may stay whole. They often share their parameters."""
HEADS = ("num_attention_heads", "num_key_value_heads")
"""Numbers in a configuration that the ranks must divide."""


def ready_plan(model: nn.Module, ranks: int) -> dict[str, ParallelStyle]:
    """Return the style of each module to split, by name, for a model that has a ready plan.

    Raises:
        UsageError: there is no ready plan for this model or this number of ranks.
    """
    plan: dict[str, ParallelStyle] = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            plan |= {f"{prefix}linear1": ColwiseParallel(), f"{prefix}linear2": RowwiseParallel()}
        elif published := _published(module):
            _check_heads(module, ranks)
            plan |= {f"{prefix}{inner}": style for inner, style in _styles(module, published)}
    if not plan:
        raise UsageError(
            f"fd.prepare: there is no ready plan to split the layers of a {type(model).__name__}; give "
            'plan={"name of a module": ColwiseParallel(), ...} from torch.distributed.tensor.parallel, or leave out '
            "the dimension tensor."
        )
    return plan


def _published(module: nn.Module) -> Mapping[str, str]:
    """Return the plan that Hugging Face's model publishes: the style of each layer by the pattern of its name."""
    if plan := getattr(module, "_tp_plan", None):
        return dict(plan)
    if getattr(module, "base_model", None) is module:
        return getattr(getattr(module, "config", None), "base_model_tp_plan", None) or {}
    return {}


def _styles(module: nn.Module, published: Mapping[str, str]) -> Iterator[tuple[str, ParallelStyle]]:
    names = [name for name, _ in module.named_modules()]
    for pattern, style in published.items():
        found = [name for name in names if fnmatchcase(name, pattern)]
        if found and style not in (*PUBLISHED, *WHOLE):
            raise UsageError(
                f"fd.prepare: the ready plan of {type(module).__name__} has the style {style!r} for {found[0]}, which "
                "torch does not have; give a plan={...} of your own, or leave out the dimension tensor."
            )
        if style in PUBLISHED:
            yield from ((name, PUBLISHED[style]()) for name in found)


def _check_heads(module: nn.Module, ranks: int) -> None:
    """Raise UsageError if a rank would get a part of an attention head."""
    for what in HEADS:
        heads: Any = getattr(getattr(module, "config", None), what, None)
        if isinstance(heads, int) and heads % ranks:
            raise UsageError(
                f"fd.prepare: the {type(module).__name__} has {what}={heads}, which cannot be divided by {ranks} ranks "
                "along tensor; change the mesh."
            )
