"""Keeps copies of a state in memory. Buffers are reused, so that later copies allocate no memory."""

from __future__ import annotations

import copy
import threading
from typing import Any

import torch

from farandole.ranks import rng
from farandole.ranks.state.shards import Shard, is_shard


class Snapshot:
    """A copy of a nested state (dicts, lists and tuples of tensors and plain values), with all tensors on the CPU.

    A tensor that a mesh shards is a `Shard` in the copy.
    """

    def __init__(self) -> None:
        self.state: Any = None
        self._readers = 0
        self._lock = threading.Lock()

    @property
    def in_use(self) -> bool:
        """True while a reader, possibly in another thread, needs this copy."""
        return self._readers > 0

    def acquire(self) -> None:
        """Prevent the copy from being overwritten until `release` is called."""
        with self._lock:
            self._readers += 1

    def release(self) -> None:
        """Undo one call of `acquire`. The copy may be overwritten after all readers have released it."""
        with self._lock:
            self._readers -= 1

    def take(self, state: Any) -> None:
        """Copy ``state`` into this snapshot."""
        self.state = copied(state, self.state)
        if rng.uses_gpu():
            torch.cuda.current_stream().synchronize()  # copies from a GPU are asynchronous


class Snapshots:
    """The last copy of a state, and buffers for the next copy.

    - `take` never overwrites the last copy, so an interrupt during `take` leaves the last copy complete.
    - `take` never overwrites a copy that a reader has acquired.
    """

    def __init__(self) -> None:
        self._slots: list[Snapshot] = []
        self._last: Snapshot | None = None

    @property
    def last(self) -> Snapshot:
        """The newest complete copy."""
        assert self._last is not None
        return self._last

    def take(self, state: Any) -> Snapshot:
        """Copy ``state`` and return the copy."""
        slot = self._free_slot()
        slot.take(state)
        self._last = slot
        return slot

    def _free_slot(self) -> Snapshot:
        for slot in self._slots:
            if slot is not self._last and not slot.in_use:
                return slot
        self._slots.append(Snapshot())
        return self._slots[-1]


def copied(value: Any, kept: Any = None) -> Any:
    """Return a copy of a nested state. Tensors of the earlier copy ``kept`` are reused if shape and dtype match."""
    if is_shard(value):
        return Shard.of(value, lambda local: _tensor_copied(local, getattr(kept, "local", None)))
    if isinstance(value, torch.Tensor):
        return _tensor_copied(value.detach(), kept)
    if isinstance(value, dict):
        old = kept if isinstance(kept, dict) else {}
        return {key: copied(part, old.get(key)) for key, part in value.items()}
    if type(value) in {list, tuple}:
        before = kept if type(kept) is type(value) and len(kept) == len(value) else [None] * len(value)
        return type(value)(copied(part, old) for part, old in zip(value, before, strict=True))
    return copy.deepcopy(value)


def loadable(value: Any) -> Any:
    """Return a copy of a snapshot's state to load, because an optimizer keeps the tensors that it loads."""
    if isinstance(value, Shard):
        return value.restored()
    if isinstance(value, dict):
        return {key: loadable(part) for key, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(map(loadable, value))
    return copied(value)


def _tensor_copied(value: torch.Tensor, kept: Any) -> torch.Tensor:
    fits = isinstance(kept, torch.Tensor) and kept.shape == value.shape and kept.dtype == value.dtype
    # Copies from a GPU to pinned memory are asynchronous and several times faster.
    buffer = kept if fits else torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
    buffer.copy_(value, non_blocking=value.is_cuda)
    return buffer
