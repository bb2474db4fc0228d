"""Shards a DataLoader over a stream. Each rank reads the whole stream, and keeps its share of each batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from farandole.exceptions import UsageError
from farandole.ranks import rng
from farandole.ranks.training.shard import LOADER_OPTIONS, BatchPlace, LoadedShare, ShardedLoader, Share

OWN_OPTIONS = ("collate_fn", "persistent_workers")
"""Options of the user's DataLoader that the rank's DataLoader does not get.

Batches are collated where the stream is read. A loader process that remains would not hear of the next epoch.
"""


def sharded(loader: Any, **options: Any) -> ShardedLoader:
    """Return the loader of this rank for a DataLoader, or for what an earlier call has returned.

    Raises UsageError if the loader cannot be sharded.
    """
    kind = ShardedStream if isinstance(getattr(loader, "dataset", None), IterableDataset) else ShardedLoader
    return kind(loader, **options)


class ShardedStream(ShardedLoader):
    """Iterates over this rank's shares of the batches of an IterableDataset, moved to this rank's device.

    - The state is that of a `ShardedLoader`: epoch, seed and number of used samples. To continue from a state, each
      rank reads the stream of the epoch again, and skips these samples.
    - All ranks make the same number of steps, because each of them sees where the stream ends.
    - If the stream has a method ``set_epoch``, it is called before each epoch.
    """

    def __len__(self) -> int:
        """Return the number of batches. Raises TypeError if the stream has no length, as DataLoader does."""
        whole, rest = divmod(len(self.dataset), self._global_batch)
        last = rest > (self._place().share if self._weight is None else 0)
        return whole + (last and not self._drops_last())

    @property
    def _global_batch(self) -> int:
        return int(self.source.batch_size or 1) * self._merged

    def _rebuilt(self) -> DataLoader[Any]:
        if self.source.num_workers > 1:
            raise UsageError(
                f"fd.prepare: the loader of an IterableDataset has num_workers={self.source.num_workers}, and each of "
                "these processes would read the whole stream; use num_workers=1, or write the data into a table once "
                "and read it with fd.dataset."
            )
        self._stream = StreamShares(self.dataset, self.source.collate_fn, drops_last=self._drops_last())
        options = {name: getattr(self.source, name) for name in LOADER_OPTIONS if name not in OWN_OPTIONS}
        return DataLoader(self._stream, batch_size=None, collate_fn=_unchanged, **options)

    def _loaded(self) -> Iterator[LoadedShare]:
        if callable(set_epoch := getattr(self.dataset, "set_epoch", None)):
            set_epoch(self.epoch)
        self._stream.begin(self._place(), batch=self._global_batch, seed=self._mixed(self.epoch), used=self._used)
        loaded: Iterator[LoadedShare] = self._start([])
        return loaded if self._weight is not None else self._evaluated(loaded)

    def _evaluated(self, loaded: Iterator[LoadedShare]) -> Iterator[LoadedShare]:
        """Leave out stand-ins. Raises UsageError if ranks that compute together would get no share."""
        place, used = self._place(), self._used
        for weight, end, batch in loaded:
            place.check(end - used)
            used = end
            if weight:
                yield weight, end, batch

    def _check_evaluation(self) -> None:
        """Do nothing: the size of a stream's last batch is known only when it is read."""


class StreamShares(IterableDataset[LoadedShare]):
    """This rank's shares of the batches of a stream, with their weights and ends (see `Share`).

    It is read in the loader's process, if there is one. `begin` must be called before it is read.
    """

    def __init__(self, source: Any, collate: Callable[[Any], Any], *, drops_last: bool) -> None:
        self._source = source
        self._collate = collate
        self._drops_last = drops_last

    def begin(self, place: BatchPlace, *, batch: int, seed: int, used: int) -> None:
        """Set this rank's place, the samples in a batch of all ranks, the seed, and the number of samples to skip."""
        self._place, self._batch, self._used = place, batch, used
        self._numbers = RandomNumbers(seed)

    def __iter__(self) -> Iterator[LoadedShare]:
        end = self._used
        for batch in self._batches():
            end += len(batch)
            share = Share(batch, self._place.share, self._place.shares, end)
            yield share.weight, end, self._collate(share.indices)

    def _batches(self) -> Iterator[list[Any]]:
        """Yield the samples of each batch, which are the same on all ranks."""
        # The ranks collate different samples. If this draws random numbers, too, the stream must not get others by it.
        with self._numbers.drawn():
            samples = iter(self._source)
            skipped = sum(1 for _ in itertools.islice(samples, self._used))
        while skipped == self._used:
            with self._numbers.drawn():
                batch = list(itertools.islice(samples, self._batch))
            if not batch or (self._drops_last and len(batch) < self._batch):
                return
            yield batch


class RandomNumbers:
    """Random numbers that only depend on a seed, and on what was drawn from them before."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: dict[str, Any] = {}

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let the generators of torch, Python and NumPy draw from these numbers in the block."""
        with rng.seeded(self._seed):
            rng.restore(self._states)
            yield
            self._states = {name: state for name, state in rng.capture().items() if name != "cuda"}


def _unchanged(batch: Any) -> Any:
    return batch
