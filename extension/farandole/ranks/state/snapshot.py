"""Copies of a state in memory, in buffers that are kept, so that the next copy allocates nothing."""

from __future__ import annotations

import copy
import threading
from typing import Any

import torch

from farandole.ranks import rng


class Snapshot:
    """One copy of a nested state: dicts, lists and tuples of tensors and plain values; tensors lie on the CPU."""

    def __init__(self) -> None:
        self.state: Any = None
        self._holders = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> bool:
        """True while somebody reads it, maybe in another thread: it must not change."""
        return self._holders > 0

    def hold(self) -> None:
        """Keep it as it is until `release`."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Let it be overwritten again."""
        with self._lock:
            self._holders -= 1

    def take(self, state: Any) -> None:
        """Copy ``state`` over what is here."""
        self.state = copied(state, self.state)
        if rng.uses_gpu():
            torch.cuda.current_stream().synchronize()  # the copies from a GPU were only queued


class Snapshots:
    """The last copy, and the buffers for the next one.

    A copy never overwrites the last one, so an interrupt in the middle of it leaves that whole; nor one that is held.
    """

    def __init__(self) -> None:
        self._slots: list[Snapshot] = []
        self._last: Snapshot | None = None

    @property
    def last(self) -> Snapshot:
        """The newest whole copy."""
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
            if slot is not self._last and not slot.held:
                return slot
        self._slots.append(Snapshot())
        return self._slots[-1]


def copied(value: Any, kept: Any = None) -> Any:
    """Return a copy of a nested state; tensors go into the tensors of ``kept``, an earlier copy, where they fit."""
    if isinstance(value, torch.Tensor):
        return _tensor_copied(value.detach(), kept)
    if isinstance(value, dict):
        old = kept if isinstance(kept, dict) else {}
        return {key: copied(part, old.get(key)) for key, part in value.items()}
    if type(value) in {list, tuple}:
        before = kept if type(kept) is type(value) and len(kept) == len(value) else [None] * len(value)
        return type(value)(copied(part, old) for part, old in zip(value, before, strict=True))
    return copy.deepcopy(value)


def _tensor_copied(value: torch.Tensor, kept: Any) -> torch.Tensor:
    fits = isinstance(kept, torch.Tensor) and kept.shape == value.shape and kept.dtype == value.dtype
    # Pinned memory for what comes from a GPU: the copy is several times faster, and the GPU need not be waited for.
    buffer = kept if fits else torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
    buffer.copy_(value, non_blocking=value.is_cuda)
    return buffer
