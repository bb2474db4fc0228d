"""Assigns default names to the parts of a training state, and checks the arguments of ``fd.state``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from farandole.exceptions import UsageError
from farandole.ranks.training.shard import ShardedLoader

KINDS: dict[str, tuple[type, ...]] = {
    "model": (nn.Module,),
    "optimizer": (torch.optim.Optimizer,),
    "loader": (ShardedLoader,),
    "scheduler": (LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau),
    "scaler": (torch.amp.GradScaler,),
}
LONGEST_REASON = 500
"""Maximum number of characters of torch's message about a state that does not fit. It may name each parameter."""
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor)


@runtime_checkable
class Stateful(Protocol):
    """Interface of a part, which is an object with ``state_dict`` and ``load_state_dict``."""

    def state_dict(self) -> Any:
        """Return the state of this part."""

    def load_state_dict(self, state: Any) -> Any:
        """Load a state that `state_dict` has returned."""


def named(positional: tuple[Any, ...], by_name: Mapping[str, Any]) -> tuple[dict[str, Stateful], dict[str, Any]]:
    """Return the parts and the plain values of a state, by name.

    Raises UsageError if a positional argument has no default name, if a name is used twice, or if an object is neither
    a part nor plain data.
    """
    parts: dict[str, Stateful] = {}
    for place, item in enumerate(positional, 1):
        kind = _kind(item, place)
        if kind in parts or kind in by_name:
            raise UsageError(
                f"fd.state: two arguments have the name {kind!r}; pass the second one by another name, e.g. "
                f"fd.state({kind}, second={kind}2)."
            )
        parts[kind] = item
    values = {}
    for name, item in by_name.items():
        if is_part(name, item):
            parts[name] = item
        else:
            values[name] = item
    return parts, values


def is_part(name: str, item: Any) -> bool:
    """Return True for a part and False for a plain value. Raise UsageError for anything else."""
    if isinstance(item, DataLoader):
        raise UsageError(
            f"fd.state: {name} is a plain DataLoader, which does not record its position; pass the loader that "
            "fd.prepare returned."
        )
    if not isinstance(item, type) and isinstance(item, Stateful):
        return True
    if is_plain(item):
        return False
    raise UsageError(
        f"fd.state: {name} is a {type(item).__name__}, neither an object with state_dict and load_state_dict nor plain "
        "data (numbers, text, tensors, arrays; lists, tuples and dicts of them); leave it out, or give it both methods."
    )


def is_plain(value: Any) -> bool:
    """Return whether ``value`` consists of numbers, text, None, tensors and arrays, or of containers of them."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    return isinstance(value, PLAIN) or type(value).__module__ == "numpy"


def load(name: str, part: Any, state: Any) -> None:
    """Load the state of a part.

    Raises UsageError if it is the state of another model or optimizer.
    """
    own = unwrapped(part)
    # This option is no state: it says how the program loops over tensors, and some meshes support only one way.
    loops = [group.get("foreach") for group in _groups(own)]
    try:
        own.load_state_dict(state)
    except (RuntimeError, ValueError) as exc:
        if not isinstance(own, nn.Module | torch.optim.Optimizer):
            raise
        raise _another(name, str(exc)) from exc
    for group, foreach in zip(_groups(own), loops, strict=True):
        if "foreach" in group:
            group["foreach"] = foreach


def check_fits(own: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Check that the states ``found`` are those of the parts ``own``, before their tensors are read.

    In ``found``, anything with a shape may stand for a tensor. `load` checks what this function does not. Raises
    UsageError if there are other parts, or if a model or an optimizer is another one.
    """
    check_names(set(own), set(found))
    for name, wrapped in own.items():
        part = unwrapped(wrapped)
        if isinstance(part, nn.Module) and (why := _difference(part.state_dict(), found[name])):
            raise _another(name, why)
        if isinstance(part, torch.optim.Optimizer):
            before, now = _sizes(found[name]["param_groups"]), _sizes(part.param_groups)
            if before != now:
                raise _another(name, f"its groups have {before} parameters, and those of the new one have {now}")


def check_names(own: set[str], found: set[str]) -> None:
    """Check that the state to load has the parts with the names ``own`` and no others. Raise UsageError otherwise."""
    if missing := own - found:
        lacking = listed(missing)
        raise UsageError(
            f"The state to load has no {lacking}; it has {listed(found)}. Leave {lacking} out of fd.state."
        )
    if left := found - own:
        raise UsageError(f"The state to load also has {listed(left)}; give fd.state the parts that were saved.")


def listed(names: Iterable[str]) -> str:
    """Return the names for a message."""
    return ", ".join(map(repr, sorted(names))) or "nothing"


def _difference(own: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    for name, value in found.items():
        if name not in own:
            return f"it also has {name!r}"
        before, now = getattr(value, "shape", None), getattr(own[name], "shape", None)
        if before is not None and now is not None and before != now:
            return f"its {name!r} has the shape {list(before)}, and that of the new one has {list(now)}"
    return ""


def _sizes(groups: Iterable[dict[str, Any]]) -> list[int]:
    return [len(group["params"]) for group in groups]


def _another(name: str, why: str) -> UsageError:
    """Return the error for the state of another model or optimizer."""
    why = textwrap.shorten(why, LONGEST_REASON).rstrip(".")
    return UsageError(
        f"The state to load has another {name}: {why}; create the same {name} as the run that saved it, or leave out "
        "--resume."
    )


def _groups(part: Any) -> list[dict[str, Any]]:
    return part.param_groups if isinstance(part, torch.optim.Optimizer) else []


def unwrapped(part: Any) -> Any:
    """Return ``part`` without the wrappers of DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(part, DistributedDataParallel):
            part = part.module
        elif isinstance(part, nn.Module) and isinstance(part._modules.get("_orig_mod"), nn.Module):  # torch.compile
            part = part._modules["_orig_mod"]
        else:
            return part


def _kind(item: Any, place: int) -> str:
    for kind, types in KINDS.items():
        if isinstance(item, types):
            return kind
    if is_part(f"argument {place}", item):
        raise UsageError(
            f"fd.state: argument {place} is a {type(item).__name__}, not one of: {', '.join(KINDS)}; pass it by name, "
            "e.g. fd.state(model, ema=ema)."
        )
    raise UsageError(f"fd.state: argument {place} ({item!r:.40}) is a plain value; pass it by name, e.g. step=0.")
