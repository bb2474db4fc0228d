"""A stream is shared by any number of ranks, and continues where it was, without repeated or missing samples."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from farandole import state as make_state
from farandole.exceptions import UsageError
from farandole.ranks.training.iterable import sharded
from farandole.ranks.training.shard import ShardedLoader
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIZES = (1, 2, 3, 4, 7)


class NoWeight:
    """A stand-in for the gradient weight that a training loader sets."""

    weight = 1.0

    def set(self, weight: float) -> None:
        self.weight = weight


class Stream(IterableDataset[int]):
    """Numbers in an order that random numbers decide. A buffer is shuffled, as streams of files do it."""

    def __init__(self, count: int = 50, *, shuffled: bool = True) -> None:
        self.count = count
        self.shuffled = shuffled

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self.count, 20):
            numbers = list(range(start, min(start + 20, self.count)))
            if self.shuffled:
                random.shuffle(numbers)
                np.random.shuffle(numbers)
                numbers = [numbers[place] for place in torch.randperm(len(numbers))]
            yield from numbers


class Sized(Stream):
    def __len__(self) -> int:
        return self.count


def _be(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("FARANDOLE_RANK", str(rank))
    monkeypatch.setenv("FARANDOLE_SIZE", str(size))


def _make(stream: Any = None, batch: int = 8, *, per_rank: bool = False, **options: Any) -> ShardedLoader:
    source = DataLoader(Stream() if stream is None else stream, batch, **options)
    return sharded(source, seed=3, per_rank=per_rank, weight=NoWeight())


def _ranks(
    monkeypatch: pytest.MonkeyPatch, size: int, make: Any, position: Any = None, steps: int | None = None
) -> tuple[list[list[list[int]]], Any]:
    """Return the batches of each rank without stand-ins, and the position at which they stop."""
    ranks, ends = [], []
    for rank in range(size):
        _be(monkeypatch, rank, size)
        torch.manual_seed(rank)
        random.seed(rank)
        loader = make()
        if position is not None:
            loader.load_state_dict(position)
        own = []
        for step, batch in enumerate(loader, 1):
            own.append(batch.tolist() if loader._weight is None or loader._weight.weight else [])
            end = loader.state_dict()
            if step == steps:
                break
        ranks.append(own)
        ends.append(end)
    assert all(end == ends[0] for end in ends)
    return ranks, ends[0]


def _joined(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the batches of all ranks together. All ranks have made the same number of steps."""
    return [[number for part in parts for number in part] for parts in zip(*ranks, strict=True)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_share_the_batches_of_one_process(monkeypatch: pytest.MonkeyPatch, size: int, workers: int) -> None:
    def make() -> ShardedLoader:
        return _make(num_workers=workers)

    alone, _ = _ranks(monkeypatch, 1, make)
    together, _ = _ranks(monkeypatch, size, make)
    assert _joined(together) == _joined(alone)
    assert [len(batch) for batch in _joined(alone)] == [8] * 6 + [2]
    assert sorted(number for batch in _joined(alone) for number in batch) == list(range(50))
    assert _joined(alone)[0] != list(range(8))


@pytest.mark.parametrize("per_rank", [False, True], ids=["global", "per_rank"])
@pytest.mark.parametrize("trial", range(10))
def test_no_sample_is_repeated_or_skipped_when_the_size_changes(
    monkeypatch: pytest.MonkeyPatch, trial: int, per_rank: bool
) -> None:
    choice = random.Random(trial)
    count, batch = choice.randint(200, 400), choice.randint(1, 9)
    position: dict[str, int] = {"epoch": 2, "samples": 0, "seed": 3}
    seen: Counter[int] = Counter()
    stretches = 0

    def make() -> ShardedLoader:
        return _make(Stream(count), batch, per_rank=per_rank)

    while position["samples"] < count:
        ranks, position = _ranks(
            monkeypatch,
            choice.choice(SIZES),
            make,
            position,
            choice.randint(1, 3) if stretches < 8 else None,
        )
        seen.update(number for batch in _joined(ranks) for number in batch)
        stretches += 1
        assert position["samples"] == seen.total()
    assert seen == Counter(range(count))
    assert stretches > 1


def test_weights_of_the_last_batch_follow_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, weights in enumerate([[1.0, 2.0], [1.0, 2.0], [1.0, 0.0], [1.0, 0.0]]):
        _be(monkeypatch, rank, 4)
        loader = _make(Stream(10))
        assert [loader._weight.weight for _ in loader] == weights  # type: ignore[union-attr]


def test_an_evaluation_has_each_sample_once_and_no_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rank, lengths in enumerate([[2, 1], [2, 1], [2], [2]]):
        _be(monkeypatch, rank, 4)
        loader = sharded(DataLoader(Sized(10), 8))
        batches = [batch.tolist() for batch in loader]
        assert [len(batch) for batch in batches] == lengths
        assert len(loader) == len(lengths)
        seen += [number for batch in batches for number in batch]
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("size", [1, 3])
def test_an_incomplete_last_batch_is_dropped_on_request(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    ranks, _ = _ranks(monkeypatch, size, lambda: _make(drop_last=True))
    assert [len(batch) for batch in _joined(ranks)] == [8] * 6
    _be(monkeypatch, 0, size)
    assert len(_make(Sized(50), drop_last=True)) == 6
    assert len(_make(Sized(50))) == 7


def test_the_length_is_that_of_the_stream_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 0, 3)
    assert len(_make(Sized(50), per_rank=True)) == 3
    with pytest.raises(TypeError):
        len(_make())


def test_each_epoch_has_its_own_order_which_set_epoch_repeats() -> None:
    loader = _make()
    first, second = ([batch.tolist() for batch in loader] for _ in range(2))
    assert first != second
    loader.set_epoch(0)
    assert [batch.tolist() for batch in loader] == first


class Epochs(Stream):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([self.epoch] * 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_stream_gets_the_epoch(workers: int) -> None:
    loader = _make(Epochs(), num_workers=workers, persistent_workers=workers > 0)
    assert [batch.tolist() for _ in range(2) for batch in loader] == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_does_not_change_the_users_random_numbers(workers: int) -> None:
    def drawn(loader: Any) -> tuple[float, float, float]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        for _ in loader:
            pass
        return torch.rand(1).item(), random.random(), np.random.rand()

    assert drawn(_make(num_workers=workers)) == drawn([])


def _noisy(numbers: list[int]) -> torch.Tensor:
    torch.rand(numbers[0] + 1)
    return torch.tensor(numbers)


def test_random_numbers_of_the_collate_function_do_not_change_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = _ranks(monkeypatch, 1, _make)
    noisy, _ = _ranks(monkeypatch, 3, lambda: _make(collate_fn=_noisy))
    assert _joined(noisy) == _joined(plain)


def test_a_restored_state_continues_in_the_middle_of_the_epoch() -> None:
    loader = _make()
    state = make_state(nn.Linear(1, 1), loader)
    iteration = iter(loader)
    first = [next(iteration).tolist() for _ in range(2)]
    state.commit()
    lost = next(iteration).tolist()
    state.restore()
    assert list(iteration) == []
    again = [batch.tolist() for batch in loader]
    assert again[0] == lost
    assert sorted(number for batch in first + again for number in batch) == list(range(50))


def test_a_stream_without_samples_has_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 1, 2)
    assert list(_make(Stream(0))) == []


class Places(Stream):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter([-1 if info is None else info.id] * 2)


def test_one_process_may_read_ahead_and_more_are_refused() -> None:
    [batch] = _make(Places(), num_workers=1)
    assert batch.tolist() == [0, 0]
    with pytest.raises(UsageError, match=r"has num_workers=2, .*; use num_workers=1, or write the data into a table"):
        _make(num_workers=2)


def test_a_prepared_loader_is_prepared_again() -> None:
    first = _make()
    again = sharded(first, weight=NoWeight())
    assert again.source is first.source
    assert sum(len(batch) for batch in again) == 50
