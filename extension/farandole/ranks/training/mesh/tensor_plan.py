"""Which layers of a model are split over the ranks of the mesh's dimension ``tensor``, and in which style."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.ready_plans import ready_plan

Plan = Mapping[str, ParallelStyle]
"""The style of each module, by name or by a pattern with ``*``; see ``torch.distributed.tensor.parallel``."""


def styles(model: nn.Module, plan: Plan | None, ranks: int) -> dict[nn.Module, ParallelStyle]:
    """Return the style of each module that ``plan`` splits over ``ranks``, or else the model's ready plan.

    Raises:
        UsageError: the plan names a module that the model does not have or that cannot be split, or there is no plan
            for this model.
    """
    plan = ready_plan(model, ranks) if plan is None else plan
    if not isinstance(plan, Mapping) or not plan:
        raise UsageError(
            f'fd.prepare: the plan is {plan!r}; it must be a dict, such as {{"name of a module": ColwiseParallel()}}.'
        )
    modules = dict(model.named_modules())
    found: dict[str, ParallelStyle] = {}
    for pattern, style in plan.items():
        names = [name for name in modules if fnmatchcase(name, pattern)]
        if not names:
            raise UsageError(f"fd.prepare: the plan names the module {pattern!r}, and the model has no such module.")
        found |= {name: _checked(pattern, style) for name in names}
    _refuse_shared(model, found)
    for name, style in found.items():
        _check_layer(name, modules[name], style, ranks)
    return {modules[name]: style for name, style in found.items()}


def _checked(pattern: str, style: object) -> ParallelStyle:
    if not isinstance(style, ParallelStyle):
        raise UsageError(
            f"fd.prepare: the plan has {style!r} for {pattern!r}; it must be a style from "
            "torch.distributed.tensor.parallel, such as ColwiseParallel()."
        )
    return style


def _refuse_shared(model: nn.Module, names: Mapping[str, object]) -> None:
    """Raise UsageError if a parameter of a layer also belongs to another module, which would keep the whole of it."""
    every = [
        (id(parameter), name)
        for name, module in model.named_modules()
        for parameter in module.parameters(recurse=False)
    ]
    owners = Counter(number for number, _ in every)
    if shared := [name for number, name in every if name in names and owners[number] > 1]:
        raise UsageError(
            f"fd.prepare: the plan splits {shared[0]}, which shares a parameter with another module; leave it out of "
            "the plan."
        )


def _check_layer(name: str, module: nn.Module, style: ParallelStyle, ranks: int) -> None:
    """Raise UsageError if a layer cannot be split evenly, which torch would only notice in a forward pass."""
    if not isinstance(style, ColwiseParallel | RowwiseParallel):
        return
    if not isinstance(module, nn.Linear | nn.Embedding):
        raise UsageError(
            f"fd.prepare: the plan splits {name}, a {type(module).__name__}; {type(style).__name__} splits nn.Linear "
            "and nn.Embedding."
        )
    what = _split_dimension(module, style)
    if (features := getattr(module, what)) % ranks:
        raise UsageError(
            f"fd.prepare: the plan splits {name} over {ranks} ranks, but its {what}={features} cannot be divided by "
            f"{ranks}; change the layer, the plan or the mesh."
        )


def _split_dimension(module: nn.Module, style: ParallelStyle) -> str:
    if isinstance(module, nn.Embedding):
        return "embedding_dim" if isinstance(style, ColwiseParallel) else "num_embeddings"
    return "out_features" if isinstance(style, ColwiseParallel) else "in_features"
