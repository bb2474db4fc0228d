"""Ranks of an elastic run that share a model end together, begin the cell again, and say how far the run has come."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from farandole import checkpoint
from farandole import state as make_state
from farandole.protocol import RESTART_EXIT_CODE
from farandole.ranks import run
from farandole.ranks.metrics import reporter
from farandole.ranks.training.mesh.joining import join_world, together
from farandole.ranks.world import membership
from farandole.ranks.world.membership import ElasticClient, WorldChange
from torch import nn

CUT = RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer")


class EndedError(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticClient]:
    def ended(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", ended)
    client = membership.current()
    client.begin("none")
    run.current().begin("", "")
    yield client
    client.end()
    run.current().begin("", "")


def fail(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_work_that_succeeds_has_its_result(member: ElasticClient) -> None:
    assert together(lambda: 3) == 3


@pytest.mark.parametrize(("error", "says"), [(WorldChange(), ""), (CUT, "rank 0 begins the cell again: RuntimeError")])
def test_a_change_of_the_world_ends_the_process(
    member: ElasticClient, capsys: pytest.CaptureFixture[str], error: BaseException, says: str
) -> None:
    done: list[str] = []
    run.current().at_end(lambda: done.append("written"))
    with pytest.raises(EndedError, match=str(RESTART_EXIT_CODE)):
        together(fail(error))
    assert done == ["written"]
    assert capsys.readouterr().out.startswith(says)


def test_an_interrupt_of_the_driver_does_not_stop_the_end_of_the_process(member: ElasticClient) -> None:
    done: list[str] = []
    run.current().at_end(lambda: done.append("written"))
    run.current().at_end(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(EndedError):
        together(fail(CUT))
    assert done == ["written"]


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_other_errors_are_raised(member: ElasticClient, error: BaseException) -> None:
    with pytest.raises(type(error)):
        together(fail(error))
    member.mark_world_broken(interrupted=True)
    with pytest.raises(EndedError):
        together(fail(error))


def test_without_an_elastic_run_no_process_ends(member: ElasticClient) -> None:
    member.end()
    with pytest.raises(RuntimeError, match="Connection closed"):
        together(fail(CUT))


def test_a_rank_says_how_far_the_run_has_come(
    member: ElasticClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[int | None, int]] = []

    def wait_for_world(_: ElasticClient, state: Any, **_how: Any) -> None:
        said.append((state.step, state.commits))

    monkeypatch.setattr(ElasticClient, "wait_for_world", wait_for_world)
    monkeypatch.setattr(reporter.current(), "run", "r")
    run.current().begin(str(tmp_path), "")
    join_world()
    state = make_state(nn.Linear(2, 2), step=0)
    made = checkpoint(state, every="1h")
    # The cell counts its steps in each epoch.
    for step in (8, 2):
        state.step = step
        made.save()
        join_world()
    # The writer of another checkpoint of this step was killed before it was published.
    (tmp_path / "checkpoints" / "step-2").rename(tmp_path / "checkpoints" / ".step-2.old")
    join_world()
    assert said == [(None, 0), (8, 1), (2, 2), (2, 2)]
