"""A loader can continue in the middle of an epoch with any number of ranks. No sample is repeated or missing."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from farandole import state as make_state
from farandole.ranks.training.shard import BatchPlace, ShardedLoader, after
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZES = (1, 2, 3, 4, 7)


class NoWeight:
    """A stand-in for the gradient weight that a training loader sets."""

    def set(self, weight: float) -> None:
        self.weight = weight


class Augmented(TensorDataset):
    """Samples with random numbers."""

    def __getitem__(self, index: int) -> Any:
        return (*super().__getitem__(index), torch.rand(1))


def _be(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("FARANDOLE_RANK", str(rank))
    monkeypatch.setenv("FARANDOLE_SIZE", str(size))


def _make(count: int = 50, batch: int = 8, *, per_rank: bool = False, seed: int = 3, **options: Any) -> ShardedLoader:
    source = DataLoader(TensorDataset(torch.arange(count)), batch, shuffle=True, **options)
    return ShardedLoader(source, seed=seed, per_rank=per_rank, weight=NoWeight())


def _taken(loader: ShardedLoader, steps: int | None) -> Iterator[tuple[list[int], float]]:
    """Yield a rank's samples and weight for each step. Stop after ``steps`` steps unless ``steps`` is None."""
    for step, (batch,) in enumerate(loader, 1):
        yield batch.tolist(), loader._weight.weight  # type: ignore[union-attr]
        if step == steps:
            return


def _stretch(
    monkeypatch: pytest.MonkeyPatch, make: Any, size: int, position: Any, steps: int | None
) -> tuple[list[int], Any]:
    """Return the samples on which ``size`` ranks train from a position, and the position at which they stop."""
    samples: list[int] = []
    ends = []
    for rank in range(size):
        _be(monkeypatch, rank, size)
        torch.manual_seed(rank)
        loader = make()
        loader.load_state_dict(position)
        for own, weight in _taken(loader, steps):
            samples += own if weight else []  # a stand-in batch has weight 0
            end = loader.state_dict()
        ends.append(end)
    assert all(end == ends[0] for end in ends)
    return samples, ends[0]


@pytest.mark.parametrize("per_rank", [False, True], ids=["global", "per_rank"])
@pytest.mark.parametrize("trial", range(20))
def test_no_sample_is_repeated_or_skipped_when_the_size_changes(
    monkeypatch: pytest.MonkeyPatch, trial: int, per_rank: bool
) -> None:
    choice = random.Random(trial)
    count, batch = choice.randint(200, 400), choice.randint(1, 9)
    position: dict[str, int] = {"epoch": 2, "samples": 0, "seed": 3}
    seen: Counter[int] = Counter()

    def make() -> ShardedLoader:
        return _make(count, batch, per_rank=per_rank)

    stretches = 0
    while position["samples"] < count:
        steps = choice.randint(1, 3) if stretches < 8 else None
        samples, position = _stretch(monkeypatch, make, choice.choice(SIZES), position, steps)
        seen.update(samples)
        stretches += 1
        assert position["epoch"] == 2
        assert position["samples"] == seen.total()
    assert seen == Counter(range(count))
    assert stretches > 1


def test_another_batch_size_continues_in_the_same_order() -> None:
    whole = [index for (batch,) in _make(50, 1) for index in batch.tolist()]
    first, second = _make(50, 8), _make(50, 5)
    begun = [index for batch, _ in _taken(first, 3) for index in batch]
    second.load_state_dict({"epoch": 0, "samples": len(begun), "seed": 3})
    rest = [index for (batch,) in second for index in batch.tolist()]
    assert begun + rest == whole


def test_after_splits_the_batch_in_which_it_begins() -> None:
    batches = [[0, 1, 2], [3, 4, 5], [6]]
    assert after(batches, 0) == batches
    assert after(batches, 3) == [[3, 4, 5], [6]]
    assert after(batches, 4) == [[4, 5], [6]]
    assert after(batches, 7) == []


def test_the_loop_of_a_cell_does_the_right_thing_after_a_restore() -> None:
    expected = _epochs(_make(), make_state(nn.Linear(1, 1), _make(), epoch=0))
    for stop in range(1, 22):
        loader = _make()
        state = make_state(nn.Linear(1, 1), loader, epoch=0)
        before = _epochs(loader, state, stop=stop)
        resumed = _make()
        after_it = make_state(nn.Linear(1, 1), resumed, epoch=0)
        after_it.load_state_dict(state.state_dict())
        assert before + _epochs(resumed, after_it) == expected


def _epochs(loader: ShardedLoader, state: Any, stop: int | None = None) -> list[tuple[int, list[int]]]:
    seen: list[tuple[int, list[int]]] = []
    for epoch in range(state.epoch, 3):
        state.epoch = epoch
        for (batch,) in loader:
            seen.append((epoch, batch.tolist()))
            if len(seen) == stop:
                state.commit()
                state.restore()
                return seen
        state.epoch = epoch + 1
        state.commit()
    return seen


def test_a_restore_within_a_loop_ends_it_and_the_next_loop_continues_there() -> None:
    loader = _make()
    state = make_state(nn.Linear(1, 1), loader)
    iteration = iter(loader)
    first = [next(iteration)[0].tolist() for _ in range(2)]
    state.commit()
    lost = next(iteration)[0].tolist()
    state.restore()
    assert list(iteration) == []
    again = [batch.tolist() for (batch,) in loader]
    assert again[0] == lost
    assert sorted(index for batch in first + again for index in batch) == list(range(50))


def test_a_loop_closed_late_does_not_change_the_restored_position() -> None:
    loader = _make()
    kept = iter(loader)  # keeps the iterator alive, like the traceback of a failed step
    next(kept)
    position = loader.state_dict()
    next(kept)
    loader.load_state_dict(position)
    kept.close()  # type: ignore[attr-defined]
    assert loader.state_dict() == position
    going = iter(loader)
    next(going)
    assert loader.state_dict()["samples"] == position["samples"] + 8


def test_set_epoch_keeps_the_position_in_the_epoch_that_it_names() -> None:
    loader = _make()
    loader.load_state_dict({"epoch": 4, "samples": 16, "seed": 3})
    loader.set_epoch(4)
    assert loader.state_dict()["samples"] == 16
    loader.set_epoch(5)
    assert loader.state_dict() == {"epoch": 5, "samples": 0, "seed": 3}


def test_the_order_follows_the_seed_of_the_position() -> None:
    first, other = _make(seed=3), _make(seed=4)
    other.load_state_dict(first.state_dict())
    assert [batch.tolist() for (batch,) in other] == [batch.tolist() for (batch,) in first]


@pytest.mark.parametrize("workers", [0, 2])
def test_continuing_does_not_change_the_users_random_numbers(workers: int) -> None:
    loader = _make(num_workers=workers)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    loader.load_state_dict({"epoch": 0, "samples": 8, "seed": 3})
    for _ in loader:
        pass
    assert torch.rand(1) == expected


def test_the_length_is_that_of_the_whole_epoch_and_follows_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = _make(per_rank=True)
    loader.load_state_dict({"epoch": 0, "samples": 16, "seed": 3})
    assert len(loader) == 7
    _be(monkeypatch, 0, 2)
    assert len(loader) == 4


def test_ranks_with_the_same_share_get_the_same_random_numbers() -> None:
    place = BatchPlace(share=0, shares=1, copied=True)
    found: list[list[float]] = [[], []]
    for used, drawn in enumerate(found):
        loader = ShardedLoader(DataLoader(Augmented(torch.arange(6)), 2), place=lambda: place)
        for _, numbers in loader:
            drawn.extend(numbers.flatten().tolist())
            torch.rand(used)  # as dropout in the stage of this rank
    assert found[0] == found[1]
    assert len(set(found[0])) == 6
