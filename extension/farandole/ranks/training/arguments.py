"""Checks how ``fd.prepare`` is called, before it changes anything."""

from __future__ import annotations

import dis
from types import FrameType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from farandole.exceptions import UsageError
from farandole.ranks.training.shard import ShardedLoader

TYPES: dict[str, tuple[type, ...]] = {
    "model": (nn.Module,),
    "optimizer": (Optimizer,),
    "loader": (DataLoader, ShardedLoader),
}


def check_order(**given: Any) -> None:
    """Raise UsageError if a model, an optimizer or a loader is given in the place of another argument."""
    for place, value in given.items():
        for name, types in TYPES.items():
            if name != place and isinstance(value, types):
                raise UsageError(
                    f"fd.prepare: the {place} is of type {type(value).__name__}, which belongs in the place of the "
                    f"{name}; call fd.prepare(model, optimizer, loader), or name the arguments, e.g. {name}={name}."
                )


def check_targets(caller: FrameType) -> None:
    """Raise UsageError if the caller unpacks the three return values into another number of variables.

    Python itself would raise an error that does not name `prepare`, and only after the model was changed.
    """
    # `f_lasti` is the position of the call, so the next instruction is what the caller does with the return value.
    following = (one for one in dis.get_instructions(caller.f_code) if one.offset > caller.f_lasti)
    use = next(following, None)
    if use is not None and use.opname == "UNPACK_SEQUENCE" and use.argval != 3:
        raise UsageError(
            f"fd.prepare returns model, optimizer and loader, but the cell unpacks the result into {use.argval}; "
            "use _ for a value that you do not need, e.g. model, optimizer, _ = fd.prepare(model, optimizer)."
        )
