"""A rank's share of a DataLoader: the same global batches on all ranks, each taking its own part of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.rng import seeded

Indices = list[Any]


class Weight(Protocol):
    """Takes how much this rank's share of the coming batch counts."""

    def set(self, weight: float) -> None:
        """Scale gradients by ``weight``; 1 for a share of mean size."""


class Share:
    """One rank's part of a global batch.

    ``weight`` is its number of samples over the mean number of a rank, 0 for a stand-in; ``end`` is how many samples
    of the epoch all ranks together have used after it.
    """

    def __init__(self, batch: Indices, rank: int, size: int, end: int = 0) -> None:
        few, more = divmod(len(batch), size)
        start = rank * few + min(rank, more)
        own = batch[start : start + few + (rank < more)]
        self.weight = len(own) * size / len(batch)
        self.end = end
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

    Each iteration is a new epoch with an order of its own, equal on all ranks; `set_epoch` chooses one. Its state is
    the epoch and how many samples of it all ranks have used, so that another number of ranks can go on from there.
    ``weight`` None means evaluation: no stand-ins. All other attributes are those of the DataLoader.
    """

    def __init__(self, loader: Any, *, seed: int = 0, per_rank: bool = False, weight: Weight | None = None) -> None:
        if isinstance(loader, ShardedLoader):  # a cell that is run again
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
        self._sampler = ShardSampler()
        self._loader = _rebuild(loader, self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration the one with this number; where it is in the middle of that one, it goes on there."""
        if epoch != self.epoch or self._running is not None:
            self._move(epoch, 0)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, and how many samples of it are used; the batch in hand counts as used."""
        return {"epoch": self.epoch, "samples": self._used, "seed": self._seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Make the next iteration go on where ``state`` was taken, with as many ranks as there are then."""
        self._seed = state["seed"]
        self._move(state["epoch"], state["samples"])

    def _move(self, epoch: int, used: int) -> None:
        self.epoch, self._used, self._running = epoch, used, None
        self._set_weight(1.0)

    def __len__(self) -> int:
        if self._weight is None and context.size() > 1:
            return len(self._shares(self.epoch))
        whole, rest = divmod(len(self._batches()), self._merged)
        return whole + (rest > 0 and not self._drops_last())

    def __iter__(self) -> Iterator[Any]:
        if self._running is not None:  # an iteration that was left in the middle, and not yet closed
            self._move(self.epoch + 1, 0)
        # While this is the running iteration, position and weight are its own: one that an exception's traceback
        # kept alive may be closed when another runs, or after the position was restored.
        self._running = this = object()
        shares = self._shares(self.epoch, self._used)
        batches = self._start(shares)
        device = context.device()
        try:
            for share, batch in zip(shares, batches, strict=True):
                if self._running is not this:
                    return
                self._used = share.end
                self._set_weight(share.weight)
                yield to_device(batch, device)
        finally:
            if self._running is this:
                self._move(self.epoch + 1, 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "source":  # copy and pickle ask before the attributes exist
            raise AttributeError(name)
        return getattr(self.source, name)

    def _set_weight(self, weight: float) -> None:
        if self._weight is not None:
            self._weight.set(weight)

    def _start(self, shares: list[Share]) -> Iterator[Any]:
        """Begin to load the batches of ``shares``.

        A DataLoader draws its workers' seed when it begins. Drawn from the user's random numbers, that would change
        them where an epoch is begun a second time, in its middle.
        """
        self._sampler.shares = shares
        with seeded(self._mixed(self.epoch, context.rank(), self._used)):
            return iter(self._loader)

    def _shares(self, epoch: int, used: int = 0) -> list[Share]:
        rank, size = context.rank(), context.size()
        shares = []
        for batch in self._global_batches(epoch, used):
            used += len(batch)
            shares.append(Share(batch, rank, size, used))
        if self._weight is None:
            return [share for share in shares if share.weight]
        return shares

    def _global_batches(self, epoch: int, used: int = 0) -> list[Indices]:
        """Return an epoch's batches from the sample ``used`` on; their order depends on seed and epoch alone."""
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
        return context.size() if self._per_rank else 1

    def _batches(self) -> Any:
        return self.source.batch_sampler

    def _drops_last(self) -> bool:
        return bool(getattr(self._batches(), "drop_last", False))

    def _generators(self) -> list[torch.Generator]:
        owners = (self.source, self._batches(), getattr(self._batches(), "sampler", None))
        found = [getattr(owner, "generator", None) for owner in owners]
        return [generator for generator in found if isinstance(generator, torch.Generator)]


def after(batches: list[Indices], used: int) -> list[Indices]:
    """Return what batches hold after their first ``used`` samples; the first may be the rest of one."""
    kept = []
    for batch in batches:
        if rest := batch[used:]:
            kept.append(rest)
        used = max(0, used - len(batch))
    return kept


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
