"""``fd.track``: shows progress over an iterable, with throughput and remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, TypeVar

from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.times import duration_text

SECONDS_BETWEEN = 0.2

T = TypeVar("T")


def track(iterable: Iterable[T], name: str = "") -> Iterator[T]:
    """Show progress while iterating, in the run's dashboard or, outside a cluster, as a line of text.

    Args:
        iterable (Iterable): the items, e.g. a DataLoader. The first dimension of the first tensor or array in an item
            is its number of samples. An item without tensors and arrays counts as one sample.
        name (str): label of the progress bar.

    Returns:
        Iterator: the items of ``iterable``.
    """
    total = _length(iterable)
    show = _report if reporter.current().connected else _print
    return _shown(iterable, Progress(name, total), show)


class Progress:
    """Counts items and samples, and creates progress records. ``clock`` returns the time in seconds."""

    def __init__(self, name: str, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self.samples = 0
        self.ended = False
        self._counts_samples = False
        self._clock = clock
        self._started = self._shown = clock()
        self._began = time.time()
        self._shown_done = 0
        self._step_seconds: float | None = None

    def add(self, item: object) -> None:
        """Count one finished item."""
        count = batch_size(item)
        self.done += 1
        self.samples += 1 if count is None else count
        self._counts_samples = self._counts_samples or count is not None

    @property
    def due(self) -> bool:
        """True if it is time for the next progress record."""
        return self._clock() - self._shown >= SECONDS_BETWEEN

    def record(self) -> dict[str, Any]:
        """Return a progress record. ``started`` and ``time`` are in seconds since the epoch.

        ``step_seconds`` is the mean duration of a step since the last record. If no step has finished since then, the
        previous value is kept, because a loop's last record often follows immediately after another record.
        """
        now = self._clock()
        elapsed = max(now - self._started, 1e-9)
        steps = self.done - self._shown_done
        self._step_seconds = (now - self._shown) / steps if steps else self._step_seconds
        self._shown, self._shown_done = now, self.done
        return {
            "kind": Kind.PROGRESS,
            "rank": context.rank(),
            "time": time.time(),
            "started": self._began,
            "ended": self.ended,
            "name": self.name,
            "done": self.done,
            "total": self.total,
            "samples": self.samples,
            "rate": self.done / elapsed,
            "samples_per_second": self.samples / elapsed if self._counts_samples else None,
            "step_seconds": self._step_seconds,
        }


def batch_size(item: object) -> int | None:
    """Return the first dimension of the first tensor or array in a batch, or None. Scalar tensors are skipped."""
    shape = getattr(item, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts: Iterable[object] = ()
    if isinstance(item, Mapping):
        parts = item.values()
    elif isinstance(item, list | tuple):
        parts = item
    return next((count for part in parts if (count := batch_size(part)) is not None), None)


def _shown(iterable: Iterable[T], progress: Progress, show: Callable[[Progress], None]) -> Iterator[T]:
    show(progress)
    try:
        for item in iterable:
            yield item
            # The generator resumes here after the loop's body, so the item is finished.
            progress.add(item)
            if progress.due:
                show(progress)
    finally:  # also runs after an error, or after a break, which closes this generator
        progress.ended = True
        show(progress)


def _report(progress: Progress) -> None:
    reporter.current().put(progress.record())


def _print(progress: Progress) -> None:
    record = progress.record()
    # A notebook shows standard error in the colour of a warning.
    print(f"\r{bar(record)}", end="\n" if progress.ended else "", flush=True)


def bar(record: dict[str, Any]) -> str:
    """Format a progress record as one line of text."""
    name, done, total, rate = record["name"], record["done"], record["total"], record["rate"]
    parts = [f"{done}" if total is None else f"{done}/{total}", f"{rate:.1f} steps/s"]
    if record["samples_per_second"] is not None:
        parts.append(f"{record['samples_per_second']:.0f} samples/s")
    if total and rate:
        parts.append(f"{duration_text((total - done) / rate)} left")
    return (f"{name}: " if name else "") + ", ".join(parts)


def _length(iterable: object) -> int | None:
    if not isinstance(iterable, Sized):
        return None
    try:
        return len(iterable)
    except TypeError:  # a DataLoader over an IterableDataset has a __len__ that raises
        return None
