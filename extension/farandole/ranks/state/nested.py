"""Splits a nested state into its tensors and an outline.

The outline is small and is pickled. The tensors are broadcast or written to disk separately.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from farandole.ranks import context
from farandole.ranks.state.shards import Shard
from farandole.ranks.world import collectives

BUCKET_BYTES = 32_000_000
"""Approximate size of a bucket in bytes. Tensors are broadcast in buckets, because each broadcast has a fixed cost."""


@dataclass(frozen=True)
class Place:
    """Placeholder for a tensor in an outline, with the tensor's key, shape and dtype.

    Checkpoints contain pickled instances, so the names of the class and of its fields must not change.
    """

    key: str
    shape: torch.Size
    dtype: torch.dtype

    def empty(self) -> torch.Tensor:
        """Return an uninitialized tensor of this shape and dtype."""
        return torch.empty(self.shape, dtype=self.dtype)


def split(value: Any, tensors: dict[str, torch.Tensor], key: str = "") -> Any:
    """Return the outline of a state, and add its tensors to ``tensors``, with keys like ``parts/model/weight``."""
    if isinstance(value, torch.Tensor | Shard):
        while key in tensors:  # a dict may have both 1 and "1" as keys
            key += "'"
        tensors[key] = value.stored() if isinstance(value, Shard) else value.detach()
        return Place(key, value.shape, value.dtype)
    if isinstance(value, dict):
        return {name: split(part, tensors, f"{key}/{name}" if key else str(name)) for name, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(split(part, tensors, f"{key}/{index}") for index, part in enumerate(value))
    return value


def join(outline: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the state that ``outline`` describes. Tensors missing from ``tensors`` are created and added to it."""
    if isinstance(outline, Place):
        return tensors.setdefault(outline.key, outline.empty())
    if isinstance(outline, dict):
        return {name: join(part, tensors) for name, part in outline.items()}
    if type(outline) in {list, tuple}:
        return type(outline)(join(part, tensors) for part in outline)
    return outline


def broadcast_state(state: dict[str, Any], root: int) -> dict[str, Any]:
    """Return rank ``root``'s nested state on all ranks. The ``state`` of other ranks is ignored.

    The other ranks receive the tensors on the CPU.
    """
    mine = context.rank() == root
    tensors: dict[str, torch.Tensor] = {}
    outline = collectives.broadcast_bytes(pickle.dumps(split(state, tensors)) if mine else b"", root)
    if not mine:
        # Unpickling is safe, because the data comes from another rank of the same user.
        state = join(pickle.loads(outline), tensors := {})
    for bucket in _buckets(list(tensors.values())):
        _broadcast_bucket(bucket, root, mine=mine)
    return state


def _buckets(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    bucket: list[torch.Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(kept.nbytes for kept in bucket) >= BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _broadcast_bucket(bucket: list[torch.Tensor], root: int, *, mine: bool) -> None:
    # Tensors are sent as bytes, because one buffer can then hold all dtypes and Horovod does not support bfloat16.
    joined = torch.cat([_as_bytes(tensor) for tensor in bucket])
    found = collectives.broadcast(joined, root)
    if mine:
        return
    for tensor, part in zip(bucket, found.split([tensor.nbytes for tensor in bucket]), strict=True):
        # The slice is cloned because it may not be aligned for the tensor's dtype.
        tensor.copy_(part.clone().view(tensor.dtype).reshape(tensor.shape))


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
