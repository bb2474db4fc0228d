"""Checkpoints of a state that a mesh of one rank shards."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farandole as fd
import pytest
import torch
import torch.distributed as dist
from farandole import checkpoint
from farandole import state as make_state
from farandole.exceptions import UsageError
from farandole.protocol import RESTART_EXIT_CODE
from farandole.ranks import run
from farandole.ranks.checkpoints import files
from farandole.ranks.metrics import reporter
from farandole.ranks.run import LoadedCheckpoint
from farandole.ranks.state.shards import is_shard, is_sharded
from farandole.ranks.state.state import State
from farandole.ranks.training.mesh import sharding
from farandole.ranks.world import membership
from torch import nn


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    run.current().begin("", "")
    yield
    dist.destroy_process_group()
    sharding._meshes.clear()


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(run, "notice", lambda text, **_: messages.append(text))
    return messages


def shard(*layers: nn.Module, groups: int = 1) -> tuple[Any, Any]:
    model = nn.Sequential(*layers)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam([{"params": parameters[index::groups]} for index in range(groups)])
    # On one rank, only an option such as the precision makes a mesh shard the model.
    model, optimizer, _ = fd.prepare(model, optimizer, mesh={"shard": -1}, precision=torch.bfloat16)
    return model, optimizer


def trained(*layers: nn.Module, groups: int = 1) -> State:
    model, optimizer = shard(*layers, groups=groups)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return make_state(model, optimizer, step=0)


def save(state: State, step: int) -> None:
    state.step = step
    checkpoint(state, every="1h", folder="c").save()


def whole(state: State) -> list[torch.Tensor]:
    return [parameter.full_tensor().detach().clone() for parameter in state.model.parameters()]


def test_a_state_continues() -> None:
    first = trained(nn.Linear(4, 8), nn.Linear(8, 2))
    save(first, 1)
    second = trained(nn.Linear(4, 8), nn.Linear(8, 2))
    assert checkpoint(second, folder="d", resume="c").resumed == 1
    assert all(map(torch.equal, whole(first), whole(second)))
    assert all(is_shard(values["exp_avg"]) for values in second.optimizer.state.values())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: trained(nn.Linear(4, 16), nn.Linear(16, 2)),
            r"another model: its '0.weight' has the shape \[8, 4\], and that of the new one has \[16, 4\]; create the",
        ),
        (lambda: trained(nn.Linear(4, 8)), r"another model: it also has '1.weight'; create the same model as the run"),
        (
            lambda: trained(nn.Linear(4, 8), nn.Linear(8, 2), groups=2),
            r"another optimizer: its groups have \[4\] parameters, and those of the new one have \[2, 2\]; create the",
        ),
        (lambda: make_state(shard(nn.Linear(4, 8), nn.Linear(8, 2))[0]), r"also has 'optimizer'; give fd.state the"),
    ],
)
def test_another_model_is_refused_before_its_tensors_are_read(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], State], says: str
) -> None:
    save(trained(nn.Linear(4, 8), nn.Linear(8, 2)), 1)
    monkeypatch.delattr(files, "restore")
    with pytest.raises(UsageError, match=rf"The state to load {'' if says.startswith('also') else 'has '}{says}"):
        checkpoint(make(), folder="d", resume="c")


class Average:
    """A part of the user, with shards of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.mean = [parameter.detach().clone() for parameter in model.parameters()]

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for own, stored in zip(self.mean, state["mean"], strict=True):
            assert is_shard(stored)
            own.copy_(stored)


def test_shards_in_other_parts_are_read_as_shards() -> None:
    model, _ = shard(nn.Linear(4, 8))
    average = Average(model)
    average.mean[0] += 1
    save(make_state(model, average=average, step=0), 1)
    other, _ = shard(nn.Linear(4, 8))
    second = Average(other)
    checkpoint(make_state(other, average=second, step=0), folder="d", resume="c")
    for own, expected in zip(second.mean, average.mean, strict=True):
        assert torch.equal(own.full_tensor(), expected.full_tensor())


def test_a_model_is_sharded_after_an_evaluation() -> None:
    model, _ = shard(nn.Linear(4, 8))
    single = nn.Linear(4, 2)
    single, _, _ = fd.prepare(single, mesh={"shard": -1}, precision=torch.bfloat16)
    with torch.no_grad():
        model(torch.ones(2, 4))
        single(torch.ones(2, 4))
    assert is_sharded(model)
    assert is_sharded(single)


def test_ranks_that_begin_again_load_only_newer_checkpoints_of_their_run(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    for name, step in (("another", 1), ("mine", 2), ("mine", 3)):
        monkeypatch.setattr(reporter.current(), "run", name)
        save(trained(nn.Linear(4, 2)), step)
    for expected in (3, 2, None):
        state = trained(nn.Linear(4, 2))
        before = whole(state)
        caught = checkpoint(state, folder="c").catch_up()
        assert caught == (None if expected is None else LoadedCheckpoint(step=expected, ranks=1))
        assert state.step == (expected or 0)
        assert all(map(torch.equal, before, whole(state))) == (expected is None)
        if expected:
            next(Path("c").glob(f"step-{expected}/*.distcp")).write_bytes(b"x")
    assert sum("is damaged and ignored" in text for text in notices) == 3


def test_ranks_that_begin_again_for_others_write_a_checkpoint_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    client = membership.current()
    client.begin("none")
    state = trained(nn.Linear(4, 2))
    checkpoint(state, every=2, folder="c")

    @fd.elastic
    def train(state: State) -> None:
        client.pause_at_next_commit()
        client.leave_at_commit(3)
        while True:
            state.step += 1
            state.commit()

    try:
        train(state)
    finally:
        client.end()
        run.current().begin("", "")
    assert ended == [RESTART_EXIT_CODE]
    assert sorted(path.name for path in Path("c").iterdir()) == ["step-2", "step-3"]


def test_ranks_that_begin_again_do_not_need_the_checkpoint_that_the_run_resumed_from(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr(reporter.current(), "run", "mine")
    client = membership.current()
    client.begin("none")
    try:
        with pytest.raises(UsageError, match="gone has no intact checkpoint to resume from"):
            checkpoint(trained(nn.Linear(4, 2)), folder="c", resume="gone")
        save(trained(nn.Linear(4, 2)), 1)
        made = checkpoint(trained(nn.Linear(4, 2)), folder="c", resume="gone")
        assert made.resumed is None
        assert made.catch_up() == LoadedCheckpoint(step=1, ranks=1)
    finally:
        client.end()
    assert notices[0] == "gone no longer has an intact checkpoint; the run continues from its own"
