"""A rank's share of a DataLoader: the same global batches on all ranks, each taking its own part of each."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from farandole.exceptions import UsageError
from farandole.ranks import context

Indices = list[Any]


class Weight(Protocol):
    """Takes how much this rank's share of the coming batch counts."""

    def set(self, weight: float) -> None:
        """Scale gradients by ``weight``; 1 for a share of mean size."""


class Share:
    """One rank's part of a global batch.

    ``weight`` is its number of samples over the mean number of a rank, 0 for a stand-in.
    """

    def __init__(self, batch: Indices, rank: int, size: int) -> None:
        few, more = divmod(len(batch), size)
        start = rank * few + min(rank, more)
        own = batch[start : start + few + (rank < more)]
        self.weight = len(own) * size / len(batch)
        # A rank with nothing to do still has to join the others' collectives: with a sample that counts nothing.
        self.indices = own or batch[:1]


class ShardSampler:
    """The batch sampler of the rank's own DataLoader: gives the shares of the current epoch."""

    def __init__(self) -> None:
        self.shares: list[Share] = []

    def __iter__(self) -> Iterator[Indices]:
        return iter([share.indices for share in self.shares])

    def __len__(self) -> int:
        return len(self.shares)


class ShardedLoader:
    """Iterates over this rank's shares of a DataLoader's batches, moved to this rank's device.

    Each iteration is a new epoch with an order of its own, equal on all ranks; `set_epoch` chooses one. ``weight``
    None means evaluation: no stand-ins. All other attributes are those of the DataLoader.
    """

    def __init__(self, loader: Any, *, seed: int = 0, per_rank: bool = False, weight: Weight | None = None) -> None:
        if isinstance(loader, ShardedLoader):  # a cell that is run again
            loader = loader.source
        _check(loader)
        self.source: DataLoader[Any] = loader
        self.dataset = loader.dataset
        self.batch_size = loader.batch_size
        self.epoch = 0
        self._seed = seed
        self._merged = context.size() if per_rank else 1
        self._weight = weight
        self._sampler = ShardSampler()
        self._loader = _rebuild(loader, self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration the one with this number."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self._weight is None and context.size() > 1:
            return len(self._shares(self.epoch))
        whole, rest = divmod(len(self._batches()), self._merged)
        return whole + (rest > 0 and not self._drops_last())

    def __iter__(self) -> Iterator[Any]:
        shares = self._shares(self.epoch)
        self.epoch += 1
        self._sampler.shares = shares
        device = context.device()
        set_weight: Callable[[float], None] = self._weight.set if self._weight else lambda _: None
        try:
            for share, batch in zip(shares, self._loader, strict=True):
                set_weight(share.weight)
                yield to_device(batch, device)
        finally:
            set_weight(1.0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "source":  # copy and pickle ask before the attributes exist
            raise AttributeError(name)
        return getattr(self.source, name)

    def _shares(self, epoch: int) -> list[Share]:
        rank, size = context.rank(), context.size()
        shares = [Share(batch, rank, size) for batch in self._global_batches(epoch)]
        if self._weight is None:
            return [share for share in shares if share.weight]
        return shares

    def _global_batches(self, epoch: int) -> list[Indices]:
        seed = (self._seed * 1_000_003 + epoch) % 2**63
        with seeded(seed):
            for generator in self._generators():
                generator.manual_seed(seed)
            batches = [list(batch) for batch in self._batches()]
        return merge(batches, self._merged, drop_last=self._drops_last())

    def _batches(self) -> Any:
        return self.source.batch_sampler

    def _drops_last(self) -> bool:
        return bool(getattr(self._batches(), "drop_last", False))

    def _generators(self) -> list[torch.Generator]:
        owners = (self.source, self._batches(), getattr(self._batches(), "sampler", None))
        found = [getattr(owner, "generator", None) for owner in owners]
        return [generator for generator in found if isinstance(generator, torch.Generator)]


def merge(batches: list[Indices], count: int, *, drop_last: bool) -> list[Indices]:
    """Return batches of ``count`` neighbours each; the rest makes a smaller one, or goes with ``drop_last``."""
    groups = [batches[start : start + count] for start in range(0, len(batches), count)]
    if drop_last and groups and len(groups[-1]) < count:
        groups.pop()
    return [[index for batch in group for index in batch] for group in groups]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with all its tensors on ``device``; lists, tuples, named tuples and mappings keep their type."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):  # graphs, token encodings
        return batch.to(device)
    if isinstance(batch, Mapping):
        return type(batch)({key: to_device(part, device) for key, part in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers that samplers use (torch on the CPU, Python, NumPy), and put the old state back."""
    numpy = sys.modules.get("numpy")
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    # Not torch.manual_seed: that would seed the GPUs too.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)


def _check(loader: Any) -> None:
    if not isinstance(loader, DataLoader):
        raise UsageError(
            f"fd.prepare: the loader is a {type(loader).__name__}; give it a torch.utils.data.DataLoader, "
            f"e.g. DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)."
        )
    if isinstance(loader.dataset, IterableDataset):
        raise UsageError(
            "fd.prepare: an IterableDataset has no index to share out; in its __iter__ take every fd.size()-th item "
            "from the fd.rank()-th on, and prepare only model and optimizer: fd.prepare(model, optimizer)."
        )
    if loader.batch_sampler is None:
        raise UsageError("fd.prepare: a DataLoader with batch_size=None makes no batches; give it a batch_size.")
    if isinstance(getattr(loader.batch_sampler, "sampler", None), DistributedSampler):
        raise UsageError("fd.prepare: the loader has a DistributedSampler already; leave it out, fd.prepare shards.")


def _rebuild(loader: DataLoader[Any], sampler: ShardSampler) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset,
        batch_sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
