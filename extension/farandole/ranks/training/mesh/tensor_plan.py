"""Splits the layers of a model over the ranks of the mesh's dimension ``tensor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from farandole.exceptions import UsageError

Plan = Mapping[str, ParallelStyle]
"""The style of each module, by name or by a pattern with ``*``; see ``torch.distributed.tensor.parallel``."""


def parallelize(
    model: nn.Module, mesh: DeviceMesh, plan: Plan | None, materialize: Callable[[nn.Module], None]
) -> None:
    """Split layers as ``plan`` says, or else the two large layers of torch's transformer layers.

    ``materialize`` is called with each of them before.

    Raises:
        UsageError: the plan names a module that the model does not have, or there is no plan for this model.
    """
    plan = _default(model) if plan is None else plan
    modules = dict(model.named_modules())
    for pattern, style in plan.items():
        found = [name for name in modules if fnmatchcase(name, pattern)]
        if not found:
            raise UsageError(f"fd.prepare: the plan names the module {pattern!r}, and the model has no such module.")
        for name in found:
            _check_divisible(name, modules[name], style, mesh.size())
            materialize(modules[name])
            parallelize_module(modules[name], mesh, style)


def _check_divisible(name: str, module: nn.Module, style: ParallelStyle, ranks: int) -> None:
    """Raise UsageError if a linear layer cannot be split evenly, which torch would only notice in a forward pass."""
    if not isinstance(module, nn.Linear) or not isinstance(style, ColwiseParallel | RowwiseParallel):
        return
    what = "out_features" if isinstance(style, ColwiseParallel) else "in_features"
    if (features := getattr(module, what)) % ranks:
        raise UsageError(
            f"fd.prepare: the plan splits {name} over {ranks} ranks, but its {what}={features} cannot be divided by "
            f"{ranks}; change the layer, the plan or the mesh."
        )


def _default(model: nn.Module) -> Plan:
    layers = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
    found: dict[str, ParallelStyle] = {}
    for name, module in model.named_modules():
        if isinstance(module, layers):
            prefix = f"{name}." if name else ""
            found |= {f"{prefix}linear1": ColwiseParallel(), f"{prefix}linear2": RowwiseParallel()}
    if not found:
        raise UsageError(
            f"fd.prepare: there is no ready plan to split the layers of a {type(model).__name__}; give "
            'plan={"name of a module": ColwiseParallel(), ...} from torch.distributed.tensor.parallel, or leave out '
            "the dimension tensor."
        )
    return found
