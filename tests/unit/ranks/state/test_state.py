"""A state saves and restores its parts and values, and rejects unsupported arguments."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from farandole import state as make_state
from farandole.exceptions import UsageError
from farandole.ranks import rng
from farandole.ranks.state.snapshot import Snapshots, copied
from farandole.ranks.training.prepare import prepare
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _training(momentum: float = 0.9) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()


def _loader() -> Any:
    return prepare(None, None, DataLoader(TensorDataset(torch.arange(10)), 2))[2]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def test_positional_parts_are_named_by_their_type() -> None:
    model, optimizer = _training()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = _loader()
    state = make_state(loader, scheduler, model, optimizer, torch.amp.GradScaler("cpu"), epoch=3)
    assert set(state.state_dict()["parts"]) == {"model", "optimizer", "loader", "scheduler", "scaler"}
    assert (state.model, state.loader, state.epoch) == (model, loader, 3)


class Average:
    """A user-defined object with a ``state_dict``."""

    def __init__(self) -> None:
        self.mean = torch.zeros(2)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.mean = state["mean"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: make_state(nn.Linear(1, 1), nn.Linear(1, 1)), "two arguments have the name 'model'"),
        (lambda: make_state(nn.Linear(1, 1), model=nn.Linear(1, 1)), "two arguments have the name 'model'"),
        (lambda: make_state(DataLoader([1])), "plain DataLoader.*fd.prepare"),
        (lambda: make_state(Average()), "argument 1 is a Average, .*pass it by name"),
        (lambda: make_state(nn.Linear(1, 1), 3), r"argument 2 \(3\) is a plain value; pass it by name"),
        (lambda: make_state(lock=object()), "lock is a object, neither an object with state_dict"),
        (lambda: make_state(kept=[1, {"a": object()}]), "kept is a list, neither"),
        (lambda: make_state(kind=nn.Linear), "kind is a type, neither"),
        (lambda: make_state(commit=1), "'commit' is a reserved name"),
        (lambda: make_state(_x=1), "'_x' is a reserved name"),
    ],
)
def test_invalid_parts_of_a_state_are_refused(make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


def test_values_are_attributes_and_must_be_declared() -> None:
    state = make_state(nn.Linear(1, 1), step=0, best=None)
    state.step += 2
    state.best = 0.5
    assert state.state_dict()["values"] == {"step": 2, "best": 0.5}
    with pytest.raises(AttributeError, match=r"no value 'stepp'; declare it .*stepp="):
        state.stepp = 1
    with pytest.raises(AttributeError, match="no 'epoch'; it has 'best', 'model', 'step'"):
        _ = state.epoch
    with pytest.raises(UsageError, match="best is a object"):
        state.best = object()


def test_a_part_may_be_replaced_by_one_of_the_same_type() -> None:
    state, other = make_state(nn.Linear(1, 1)), nn.Linear(1, 1)
    state.model = other
    assert state.model is other
    with pytest.raises(AttributeError, match="no part 'optimizer'"):
        state.optimizer = torch.optim.SGD(other.parameters(), lr=1)


def test_restore_returns_to_the_last_commit_and_training_continues_equally() -> None:
    model, optimizer = _training()
    state = make_state(model, optimizer, step=0, history=[])
    _step(model, optimizer)
    state.step, state.history = 1, ["a"]
    state.commit()
    committed = copied(state.state_dict())

    def go_on() -> Any:
        for _ in range(3):
            _step(model, optimizer)
            state.history.append(random.random() + np.random.random())
        state.step = 4
        return copied(state.state_dict())

    first = go_on()
    assert not _same(first, committed)
    for _ in range(2):  # the second pass fails if training has changed the copy through the restored state
        state.restore()
        assert _same(state.state_dict(), committed)
        assert _same(go_on(), first)


def test_without_a_commit_restore_returns_to_the_beginning() -> None:
    model, optimizer = _training()
    state = make_state(model, optimizer, step=0)
    begun = copied(state.state_dict())
    _step(model, optimizer)
    state.step = 1
    state.restore()
    assert _same(state.state_dict(), begun)
    assert (state.step, state.commits) == (0, 0)


def test_commits_are_counted_and_hooks_called_in_order_after_the_copy() -> None:
    state, seen = make_state(nn.Linear(1, 1), step=0), []
    state.on_commit(lambda s: seen.append(("first", s.commits, s.last.state["values"]["step"])))
    state.on_commit(lambda s: seen.append(("second", s.commits, s.last.state["commits"])))
    for step in (1, 2):
        state.step = step
        state.commit()
    assert seen == [("first", 1, 1), ("second", 1, 1), ("first", 2, 2), ("second", 2, 2)]


def test_an_error_of_a_hook_ends_the_commit_and_keeps_the_copy() -> None:
    state = make_state(step=7)

    def refuse(_state: object) -> None:
        raise InterruptedError("the world changes")

    state.on_commit(refuse)
    with pytest.raises(InterruptedError, match="world"):
        state.commit()
    assert (state.commits, state.last.state["values"]) == (1, {"step": 7})


def _pointers(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [value.data_ptr()]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [pointer for part in parts for pointer in _pointers(part)]


def test_later_commits_use_the_buffers_of_earlier_ones() -> None:
    model, optimizer = _training()
    state = make_state(model, optimizer)
    buffers = []
    for _ in range(6):
        _step(model, optimizer)
        state.commit()
        buffers.append(_pointers(state.last.state))
    # Commits alternate between two buffers. The first buffer initially contains the state before any step, in which the
    # optimizer has no momentum, so the second commit still allocates memory.
    assert buffers[2] == buffers[4] != buffers[3] == buffers[5]


def test_a_copy_in_use_does_not_change() -> None:
    snapshots, tensor = Snapshots(), torch.zeros(3)
    copy = snapshots.take({"x": tensor})
    copy.acquire()
    for number in range(1, 5):
        snapshots.take({"x": tensor.fill_(number)})
    assert copy.state["x"].tolist() == [0, 0, 0]
    assert snapshots.last.state["x"].tolist() == [4, 4, 4]
    copy.release()
    seen = {id(snapshots.take({"x": tensor.fill_(number)})) for number in range(5, 11)}
    assert id(copy) in seen


def test_an_interrupted_copy_leaves_the_previous_one_complete() -> None:
    snapshots, tensor = Snapshots(), torch.zeros(3)

    class Trap:
        def __deepcopy__(self, _memo: object) -> None:
            raise KeyboardInterrupt

    for number in (1, 2):
        snapshots.take({"x": tensor.fill_(number), "trap": 0})
    with pytest.raises(KeyboardInterrupt):
        snapshots.take({"x": tensor.fill_(3), "trap": Trap()})
    assert snapshots.last.state["x"].tolist() == [2, 2, 2]


def test_a_wrapped_model_keeps_the_state_of_the_inner_one() -> None:
    model = nn.Linear(2, 1)
    plain = make_state(model).state_dict()["parts"]["model"]
    compiled = make_state(torch.compile(model)).state_dict()["parts"]["model"]
    assert set(compiled) == set(plain) == {"weight", "bias"}


def test_a_state_with_other_parts_is_refused_and_they_are_named() -> None:
    model, optimizer = _training()
    whole, model_only = make_state(model, optimizer), make_state(model)
    with pytest.raises(UsageError, match="has no 'optimizer'; it has 'model'"):
        whole.load_state_dict(model_only.state_dict())
    with pytest.raises(UsageError, match="also has 'optimizer'"):
        model_only.load_state_dict(whole.state_dict())


def test_a_state_of_another_model_or_optimizer_is_refused_with_what_differs() -> None:
    model, optimizer = _training()
    state = make_state(model, optimizer)
    other = make_state(nn.Linear(3, 1), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(UsageError, match=r"has another model: .*Missing key.* create the same model as the run"):
        state.load_state_dict(other.state_dict())
    other = make_state(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    with pytest.raises(UsageError, match=r"has another optimizer: .*size of optimizer's group; create the same opt"):
        state.load_state_dict(other.state_dict())


@pytest.mark.parametrize(("saved", "own"), [(False, None), (None, False)])
def test_an_optimizer_keeps_its_own_way_to_loop_over_tensors(saved: bool | None, own: bool | None) -> None:
    model = nn.Linear(2, 1)
    before = make_state(model, torch.optim.SGD(model.parameters(), lr=0.3, foreach=saved))
    after = make_state(model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=own))
    after.load_state_dict(before.state_dict())
    [group] = after.optimizer.param_groups
    assert (group["lr"], group["foreach"]) == (0.3, own)


def test_custom_parts_are_kept() -> None:
    average = Average()
    state = make_state(average=average)
    average.mean = torch.ones(2)
    state.commit()
    average.mean += 1
    state.restore()
    average.mean += 5  # changes the restored tensor in place
    state.restore()
    assert average.mean.tolist() == [1, 1]


def test_random_numbers_continue_where_they_stopped() -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.random()), float(torch.rand(1))]

    states = rng.capture()
    first = draw()
    draw()
    rng.restore(states)
    assert draw() == first


def test_new_ranks_get_their_own_random_numbers() -> None:
    def draw(number: int, rank: int) -> tuple[float, ...]:
        rng.seed(number, rank)
        return (random.random(), float(np.random.random()), float(torch.rand(1)))

    drawn = {place: draw(*place) for place in [(1, 2), (1, 3), (2, 2)]}
    assert len({value for values in drawn.values() for value in values}) == 9
    assert draw(1, 2) == drawn[1, 2]
