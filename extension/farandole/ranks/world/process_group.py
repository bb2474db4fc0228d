"""Lets scripts create and destroy the default process group although the rank already has one.

Scripts for torchrun begin with ``init_process_group`` and end with ``destroy_process_group``. On a rank the world
exists before a cell begins, and the next cell needs it, so both calls leave the world as it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from farandole.exceptions import UsageError
from farandole.ranks import context


@functools.cache
def protect(exists: Callable[[], bool]) -> None:
    """Replace both functions of `torch.distributed`. They act on the default group only if no world ``exists``."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for function in (_init(dist.init_process_group, exists), _destroy(dist.destroy_process_group, exists)):
        setattr(dist, function.__name__, function)
        setattr(distributed_c10d, function.__name__, function)


def destroy() -> None:
    """Destroy all process groups, including the world."""
    import torch.distributed as dist

    inspect.unwrap(dist.destroy_process_group)()


def is_alive(group: Any) -> bool:
    """Return whether neither the end of the world nor ``destroy_process_group()`` has destroyed a group."""
    from torch.distributed.distributed_c10d import _world

    return group in _world.pg_map


def _init(original: Callable[..., None], exists: Callable[[], bool]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if exists():
            _check(signature.bind(*args, **kwargs).arguments)
            return
        try:
            original(*args, **kwargs)
        except ValueError as exc:
            _check_backend(exc)
            raise

    return init_process_group


def _destroy(original: Callable[..., None], exists: Callable[[], bool]) -> Callable[..., None]:
    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _world

        if not exists() or not (group is None or group is dist.group.WORLD):
            original(group)
            return
        for subgroup in [each for each in _world.pg_map if each is not dist.group.WORLD]:
            original(subgroup)

    return destroy_process_group


def _check_backend(exc: ValueError) -> None:
    """Raise UsageError if torch found no addresses in the environment because the ranks have another backend."""
    if context.backend() != "torch" and "env://" in str(exc):
        raise UsageError(
            f"the ranks have backend {context.backend()!r}, so they have no process group of torch.distributed; use "
            "%%distributed_train --backend torch, or start the cluster with --backend torch"
        ) from exc


def _check(given: Mapping[str, Any]) -> None:
    """Raise UsageError if the arguments of ``init_process_group`` describe another group than the rank's world."""
    import torch.distributed as dist

    own, rank, size = dist.get_backend_config(), dist.get_rank(), dist.get_world_size()
    # A rank that joins an elastic run later has a world of its own, but its cell already knows the future numbers.
    fits = {
        "backend": (own, _names(given.get("backend")) <= _names(own)),
        "rank": (rank, given.get("rank", -1) in {-1, rank, context.rank()}),
        "world_size": (size, given.get("world_size", -1) in {-1, size, context.size()}),
    }
    for name, (value, fit) in fits.items():
        if not fit:
            raise UsageError(
                f"init_process_group was called with {name}={given[name]!r}, but this rank is already in the cluster's "
                f"process group with {name}={value!r}; leave out the argument"
            )


def _names(backend: str | None) -> set[str]:
    """Return the names in a backend such as "gloo" or "cpu:gloo,cuda:nccl". Without a backend, any group fits."""
    names = {part.rpartition(":")[2] for part in (backend or "").lower().split(",")}
    return names - {"", "undefined"}
