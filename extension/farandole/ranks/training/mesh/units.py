"""Selects the units of a model: the modules whose parameters are gathered together when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from farandole.exceptions import UsageError

LEAST_SHARE = 0.01
"""The share of a model's parameters that the smallest modules need together to be units by default. Each unit costs two
collectives in a forward and a backward pass."""


def units(model: nn.Module, wrap: Sequence[type[nn.Module]] | None) -> list[nn.Module]:
    """Return the units of a model, the innermost first. What is in none of them belongs to the model itself.

    By default, the members of each ``nn.ModuleList`` and ``nn.Sequential`` are units, which are the blocks of most
    models, unless they and all smaller ones together are very small. With ``wrap``, all modules of these classes are
    units.

    Raises UsageError if ``wrap`` is not a list of module classes, or if the model has none of them.
    """
    if wrap is None:
        sizes = {block: _count(block) for block in _blocks(model)}
        least = LEAST_SHARE * _count(model)
        return [block for block, own in sizes.items() if own and sum(n for n in sizes.values() if n <= own) >= least]
    if not isinstance(wrap, list | tuple | set) or not all(map(_is_module_class, wrap)):
        raise UsageError(f"fd.prepare: wrap is {wrap!r}; it must be a list of classes of modules, e.g. [Block].")
    found = [module for module in model.modules() if isinstance(module, tuple(wrap)) and module is not model]
    if missing := [kind for kind in wrap if not any(isinstance(module, kind) for module in found)]:
        raise UsageError(
            f"fd.prepare: wrap names {missing[0].__name__}, and the {type(model).__name__} has no such module inside; "
            "pass the class of its repeated blocks."
        )
    return [module for module in reversed(found) if _count(module)]


def check_parameters(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Raise UsageError if the model has a parameter that cannot be split, or several dtypes in one unit."""
    kinds: dict[nn.Module, tuple[torch.dtype, str]] = {}
    for name, unit, parameter in _owned(model, blocks):
        if parameter.ndim == 0:
            raise UsageError(
                f"fd.prepare: the parameter {name} has no dimension that a mesh could split; give it one, e.g. "
                "nn.Parameter(torch.zeros(1))."
            )
        if not parameter.is_contiguous():
            raise UsageError(
                f"fd.prepare: the values of the parameter {name} are not in the order of its dimensions, so a mesh "
                "cannot split it; convert it, e.g. with model.to(memory_format=torch.contiguous_format)."
            )
        dtype, first = kinds.setdefault(unit, (parameter.dtype, name)) if parameter.requires_grad else (None, "")
        if dtype not in {None, parameter.dtype}:
            raise UsageError(
                f"fd.prepare: the parameter {first} is {dtype} and {name} is {parameter.dtype}, and those of a unit "
                "are gathered together; give them one dtype, or give wrap=[...] with classes of modules that have one."
            )


def check_ties(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Raise UsageError if a parameter belongs to two units, whose shares of it would no longer be the same."""
    homes: dict[int, tuple[nn.Module, str]] = {}
    for name, unit, parameter in _owned(model, blocks):
        first, where = homes.setdefault(id(parameter), (unit, name))
        if first is not unit:
            raise UsageError(
                f"fd.prepare: {where} and {name} are one parameter in two units, which cannot share it; give "
                "wrap=[...] with classes of modules that contain neither or both of them."
            )


def _owned(model: nn.Module, blocks: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Yield each parameter with its name and its unit, and a shared one for each module that has it."""
    inside = {module: block for block in reversed(blocks) for module in block.modules()}
    for place, module in model.named_modules():
        for name, parameter in module.named_parameters(place, recurse=False):
            yield name, inside.get(module, model), parameter


def _is_module_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, nn.Module)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost members of lists and sequences of modules that have parameters."""
    for child in module.children():
        if isinstance(module, nn.ModuleList | nn.Sequential) and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child
        else:
            yield from _blocks(child)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
