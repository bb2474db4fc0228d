"""Shards a DataLoader. All ranks compute the same global batches, and each rank loads its share of each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.rng import seeded
from farandole.ranks.training.sync import attached

Indices = list[Any]
LoadedShare = tuple[float, int, Any]
"""The weight and the end of a `Share`, and its batch."""
LOADER_OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator"),
    *("prefetch_factor", "persistent_workers"),
)
"""Options that a rank's DataLoader copies from the user's DataLoader."""


@dataclass(frozen=True, kw_only=True)
class BatchPlace:
    """Which share of each batch this rank gets."""

    share: int
    shares: int
    """The number of shares of a batch."""
    together: bool = False
    """Whether a forward pass needs all ranks, so that each of them must get a share of each batch."""
    copied: bool = False
    """Whether other ranks get the same share, so that random numbers of the data set must be the same on them."""

    def check(self, samples: int) -> None:
        """Raise UsageError, on all ranks alike, if a batch for evaluation has too few samples for all of them."""
        if self.together and samples < self.shares:
            raise UsageError(
                f"fd.prepare: a batch of the loader has {samples} sample{'s' * (samples > 1)} for {self.shares} ranks "
                "of the mesh, and all of them need one; choose another batch_size, or drop_last=True."
            )


Placement = Callable[[], BatchPlace]
"""Returns the place of this rank in the current world."""


def place_in_world() -> BatchPlace:
    """Return the place of this rank in the world, in which each rank gets a share of its own."""
    return BatchPlace(share=context.rank(), shares=context.size())


class Weight(Protocol):
    """Interface of an object that scales the gradients by this rank's share of the next batch."""

    def set(self, weight: float) -> None:
        """Scale gradients by ``weight``, which is 1 for a share of average size."""


class Share:
    """One rank's share of a global batch.

    Attributes:
        indices: samples to load. A rank without samples loads the first sample of the batch as a stand-in, because the
            rank has to join the collectives.
        weight: number of samples divided by the mean number per rank; 0 for a stand-in.
        end: number of samples of the epoch that all ranks together have used after this batch.
    """

    def __init__(self, batch: Indices, rank: int, size: int, end: int = 0) -> None:
        few, more = divmod(len(batch), size)
        start = rank * few + min(rank, more)
        own = batch[start : start + few + (rank < more)]
        self.weight = len(own) * size / len(batch)
        self.end = end
        self.indices = own or batch[:1]


class ShardSampler:
    """Batch sampler for the rank's own DataLoader. It yields the rank's shares of the current epoch."""

    def __init__(self) -> None:
        self.shares: list[Share] = []

    def __iter__(self) -> Iterator[Indices]:
        return iter([share.indices for share in self.shares])

    def __len__(self) -> int:
        return len(self.shares)


class ShardedLoader:
    """Iterates over this rank's shares of a DataLoader's batches, moved to this rank's device.

    - Each iteration is a new epoch with its own order, which is the same on all ranks. `set_epoch` selects the epoch.
    - The state of the loader is the epoch, the seed and the number of samples that all ranks have used. A different
      number of ranks can therefore continue from that state.
    - If ``weight`` is None, the loader is for evaluation and has no stand-ins.
    - All other attributes are looked up on the DataLoader.
    """

    def __init__(
        self,
        loader: Any,
        *,
        seed: int = 0,
        per_rank: bool = False,
        weight: Weight | None = None,
        place: Placement = place_in_world,
    ) -> None:
        if isinstance(loader, ShardedLoader):  # the cell was run before
            loader = loader.source
        _check(loader)
        self.source: DataLoader[Any] = loader
        self.dataset = loader.dataset
        self.batch_size = loader.batch_size
        self.epoch = 0
        self._used = 0
        self._running: object | None = None
        self._seed = seed
        self._per_rank = per_rank
        self._weight = weight
        self._place = place
        self._sampler = ShardSampler()
        self._loader = self._rebuilt()
        if weight is None and place().together:
            self._check_evaluation()

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration. A restored position within that epoch is kept."""
        if epoch != self.epoch or self._running is not None:
            self._move(epoch, 0)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, the number of samples used in it (including the current batch), and the seed."""
        return {"epoch": self.epoch, "samples": self._used, "seed": self._seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Make the next iteration continue from ``state``, with the current number of ranks."""
        self._seed = state["seed"]
        self._move(state["epoch"], state["samples"])

    def _move(self, epoch: int, used: int) -> None:
        self.epoch, self._used, self._running = epoch, used, None
        self._set_weight(1.0)

    def __len__(self) -> int:
        if self._weight is None and self._place().shares > 1:
            return len(self._shares(self.epoch))
        whole, rest = divmod(len(self._batches()), self._merged)
        return whole + (rest > 0 and not self._drops_last())

    def __iter__(self) -> Iterator[Any]:
        if self._running is not None:  # an earlier iteration was left unfinished and is not closed yet
            self._move(self.epoch + 1, 0)
        # Only the running iteration may change the position and the weight. An earlier iteration may be closed late,
        # because the traceback of an exception keeps it alive. By then, another iteration may be running, or the
        # position may have been restored.
        self._running = this = object()
        loaded = self._loaded()
        device, begun = context.device(), time.perf_counter()
        try:
            for weight, end, batch in loaded:
                if self._running is not this:
                    return
                self._used = end
                self._set_weight(weight)
                yield to_device(batch, device)
            if self._running is this and self._weight is not None:
                attached.average_all(since=begun)
        finally:
            if self._running is this:
                self._move(self.epoch + 1, 0)

    def __getattr__(self, name: str) -> Any:
        # copy and pickle create a loader without calling __init__, and then look up special methods. Before `source` is
        # set, looking it up here would recurse without end.
        if name.startswith("__") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def _set_weight(self, weight: float) -> None:
        if self._weight is not None:
            self._weight.set(weight)

    def _rebuilt(self) -> DataLoader[Any]:
        """Return a DataLoader for this rank's shares. Raises UsageError if that is not possible."""
        options = {name: getattr(self.source, name) for name in LOADER_OPTIONS}
        return DataLoader(self.dataset, batch_sampler=self._sampler, **options)

    def _loaded(self) -> Iterator[LoadedShare]:
        """Start loading what is left of the epoch."""
        shares = self._shares(self.epoch, self._used)
        batches = self._start(shares)
        return ((share.weight, share.end, batch) for share, batch in zip(shares, batches, strict=True))

    def _start(self, shares: list[Share]) -> Iterator[Any]:
        """Start loading the batches of ``shares``.

        A DataLoader draws a seed for its worker processes when it starts. If this seed came from the user's random
        number generator, a restart in the middle of an epoch would change the user's random numbers.
        """
        self._sampler.shares = shares
        with self._seeded_for_share():
            batches = iter(self._loader)
        return self._drawn_alike(batches) if self._place().copied else batches

    def _drawn_alike(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches whose random numbers do not depend on what this rank draws, for example for dropout."""
        end = object()
        while True:
            with self._seeded_for_share():
                batch = next(batches, end)
            if batch is end:
                return
            yield batch

    def _seeded_for_share(self) -> AbstractContextManager[None]:
        return seeded(self._mixed(self.epoch, self._place().share, self._used))

    def _shares(self, epoch: int, used: int = 0) -> list[Share]:
        place, shares = self._place(), []
        for batch in self._global_batches(epoch, used):
            used += len(batch)
            shares.append(Share(batch, place.share, place.shares, used))
            if self._weight is None:
                place.check(len(batch))
        if self._weight is None:
            return [share for share in shares if share.weight]
        return shares

    def _check_evaluation(self) -> None:
        """Raise UsageError now, not after the training, if an evaluation would not get a share for each rank."""
        self._shares(self.epoch)

    def _global_batches(self, epoch: int, used: int = 0) -> list[Indices]:
        """Return the epoch's batches after the first ``used`` samples. The order depends only on seed and epoch."""
        seed = self._mixed(epoch)
        with seeded(seed):
            for generator in self._generators():
                generator.manual_seed(seed)
            batches = [list(batch) for batch in self._batches()]
        return merge(after(batches, used), self._merged, drop_last=self._drops_last())

    def _mixed(self, *numbers: int) -> int:
        seed = self._seed
        for number in numbers:
            seed = seed * 1_000_003 + number
        return seed % 2**63

    @property
    def _merged(self) -> int:
        return self._place().shares if self._per_rank else 1

    def _batches(self) -> Any:
        return self.source.batch_sampler

    def _drops_last(self) -> bool:
        return bool(getattr(self._batches(), "drop_last", False))

    def _generators(self) -> list[torch.Generator]:
        owners = (self.source, self._batches(), getattr(self._batches(), "sampler", None))
        found = [getattr(owner, "generator", None) for owner in owners]
        return [generator for generator in found if isinstance(generator, torch.Generator)]


def after(batches: list[Indices], used: int) -> list[Indices]:
    """Return what is left of ``batches`` after the first ``used`` samples. The first batch may be a partial batch."""
    kept = []
    for batch in batches:
        if rest := batch[used:]:
            kept.append(rest)
        used = max(0, used - len(batch))
    return kept


def merge(batches: list[Indices], count: int, *, drop_last: bool) -> list[Indices]:
    """Merge every ``count`` consecutive batches into one. If ``drop_last``, drop an incomplete last group."""
    groups = [batches[start : start + count] for start in range(0, len(batches), count)]
    if drop_last and groups and len(groups[-1]) < count:
        groups.pop()
    return [[index for batch in group for index in batch] for group in groups]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with all tensors on ``device``. Lists, tuples, named tuples and mappings keep their types."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):  # e.g. graphs or token encodings
        return batch.to(device)
    if isinstance(batch, Mapping):
        return type(batch)({key: to_device(part, device) for key, part in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


def _check(loader: Any) -> None:
    if not isinstance(loader, DataLoader):
        raise UsageError(
            f"fd.prepare: the loader is a {type(loader).__name__}; pass a torch.utils.data.DataLoader, "
            f"e.g. DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)."
        )
    if loader.batch_sampler is None:
        raise UsageError("fd.prepare: a DataLoader with batch_size=None has no batches; give it a batch_size.")
    if isinstance(getattr(loader.batch_sampler, "sampler", None), DistributedSampler):
        raise UsageError(
            "fd.prepare: the loader has a DistributedSampler; remove it, because fd.prepare shards the data."
        )
