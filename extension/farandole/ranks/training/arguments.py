"""Checks how ``fd.prepare`` is called, before it changes anything."""

from __future__ import annotations

import dis
from collections.abc import Iterable
from types import FrameType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from farandole.exceptions import UsageError
from farandole.ranks.state.shards import is_sharded
from farandole.ranks.training.shard import ShardedLoader

TYPES: dict[str, tuple[type, ...]] = {
    "model": (nn.Module,),
    "optimizer": (Optimizer,),
    "loader": (DataLoader, ShardedLoader),
}

STORES = {"STORE_NAME", "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_GLOBAL", "STORE_DEREF"}
"""The instructions that store a value in a variable. ``STORE_FAST_LOAD_FAST`` is new in Python 3.13."""


def check_order(**given: Any) -> None:
    """Raise UsageError if a model, an optimizer or a loader is given in the place of another argument."""
    for place, value in given.items():
        for name, types in TYPES.items():
            if name != place and isinstance(value, types):
                raise UsageError(
                    f"fd.prepare: the {place} is of type {type(value).__name__}, which belongs in the place of the "
                    f"{name}; call fd.prepare(model, optimizer, loader), or name the arguments, e.g. {name}={name}."
                )


def check_whole(model: Any) -> None:
    """Raise UsageError if a mesh shards the model, or if it has no memory, although no mesh is given."""
    if is_sharded(model):
        raise UsageError(
            "fd.prepare: a mesh shards this model; give the same mesh={...} again, or create the model again."
        )
    if isinstance(model, nn.Module) and any(parameter.is_meta for parameter in model.parameters()):
        raise UsageError(
            "fd.prepare: the model was made in a block of fd.deferred and has no memory; give mesh={...}, which gives "
            'it memory, e.g. mesh={"shard": -1}.'
        )


def check_targets(caller: FrameType, *given: Any) -> None:
    """Raise UsageError if the caller does not unpack the three return values into three variables.

    This is so if there is another number of variables, or if the variable of an argument gets all of them, as in
    ``model = fd.prepare(model)``. Another variable, as in ``prepared = fd.prepare(model)``, may get all of them.

    Python itself would raise an error that does not name `prepare`, and only after the model was changed.
    """
    use = _use_of_result(caller)
    if use is None:
        return
    if use.opname in STORES and _is_one_of(given, caller, _name(use)):
        raise UsageError(
            f"fd.prepare returns model, optimizer and loader, but the cell stores all three in {_name(use)!r}; write "
            "model, optimizer, loader = fd.prepare(model, optimizer, loader), with _ for a value that you do not need, "
            "e.g. model, _, _ = fd.prepare(model)."
        )
    if use.opname == "UNPACK_SEQUENCE" and use.argval != 3:
        raise UsageError(
            f"fd.prepare returns model, optimizer and loader, but the cell unpacks the result into {use.argval}; "
            "use _ for a value that you do not need, e.g. model, optimizer, _ = fd.prepare(model, optimizer)."
        )


def _use_of_result(caller: FrameType) -> dis.Instruction | None:
    """Return the instruction that takes the return value of the call that the caller is making."""
    # `f_lasti` is the position of the call, so the next instruction is what the caller does with the return value. A
    # prefix for large arguments may stand before it.
    following = (one for one in dis.get_instructions(caller.f_code) if one.offset > caller.f_lasti)
    return next((one for one in following if one.opname != "EXTENDED_ARG"), None)


def _name(store: dis.Instruction) -> str:
    """Return the variable of an instruction that stores a value. Python 3.13 joins some pairs of instructions."""
    return str(store.argval[0] if isinstance(store.argval, tuple) else store.argval)


def _is_one_of(values: Iterable[Any], frame: FrameType, name: str) -> bool:
    """Return whether the variable of this name is one of the values that are not None."""
    held = frame.f_locals.get(name, frame.f_globals.get(name))
    return held is not None and any(held is value for value in values)
