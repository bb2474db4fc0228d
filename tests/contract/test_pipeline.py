"""A model that a pipeline cuts into stages trains on several ranks as on one, and without a pipeline."""

import _thread
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from farandole import Cluster
from farandole.exceptions import RankError
from farandole.ranks.world.world import CONNECT_TIMEOUT
from farandole.runs.store import RunStore

from tests.contract.pipeline_on_ranks import CASES, INTERLEAVED, QUICK, Case
from tests.contract.worlds import run, world

DIFFERENCES = {"float32": 1e-4, "float64": 1e-9}
"""The largest difference of parameters, relative to their norm."""
LOSS = 1e-5
UNLIKE_WHOLE = {"batchnorm", "deferred", "deferred-tied"}
"""Variants whose statistics or first values differ from those of a model that is trained without a pipeline."""


def _trained(folder: Path, cases: str, size: int) -> Path:
    for backend, ranks in (("none", 1), ("torch", size)):
        with world(backend, ranks) as environments:
            run(environments, "tests.contract.pipeline_on_ranks", folder, cases)
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("quick"), "quick", 4)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("four"), "all", 4)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("two"), "two", 2)


def check(folder: Path, case: Case, size: int) -> None:
    name = "-".join(case)
    ranks = [torch.load(folder / f"{name}.{size}.{rank}.pt") for rank in range(size)]
    _check_like(torch.load(folder / f"{name}.1.0.pt"), ranks, DIFFERENCES[case[-1]])
    if case[1] not in UNLIKE_WHOLE:
        _check_like(torch.load(folder / f"{name}.whole.pt"), ranks, DIFFERENCES[case[-1]])


def _check_like(alone: dict[str, Any], ranks: list[dict[str, Any]], difference: float) -> None:
    assert sorted(key for rank in ranks for key in rank["state"]) == sorted(alone["state"])
    for rank in ranks:
        assert rank["losses"] == pytest.approx(alone["losses"], abs=LOSS)
        assert rank["norms"] == pytest.approx(alone["norms"], rel=1e-4)
        torch.testing.assert_close(rank["output"], alone["output"], rtol=10 * difference, atol=10 * difference)
        for name, value in rank["state"].items():
            expected = alone["state"][name]
            assert (value - expected).double().norm() <= difference * expected.double().norm(), name
    assert alone["losses"][-1] < alone["losses"][0]


@pytest.mark.parametrize("case", QUICK, ids="-".join)
def test_four_ranks_train_as_one(quick: Path, case: Case) -> None:
    check(quick, case, 4)


def test_each_rank_continues_from_its_stage(quick: Path) -> None:
    for rank in range(4):
        found = torch.load(quick / f"resumed.{rank}.pt")
        assert found["first"].keys() == found["second"].keys()
        for name, expected in found["first"].items():
            torch.testing.assert_close(found["second"][name], expected, rtol=0, atol=0)


@pytest.mark.release
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_four_ranks_train_as_one_in_every_case(four: Path, case: Case) -> None:
    check(four, case, 4)


@pytest.mark.release
@pytest.mark.parametrize("case", [*CASES[:2], *INTERLEAVED], ids="-".join)
def test_two_ranks_train_as_one(two: Path, case: Case) -> None:
    check(two, case, 2)


CELL = """
import threading, time, torch, farandole as fd
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Second(nn.Linear):
    calls = 0
    def forward(self, x):
        Second.calls += 1
        if Second.calls == 6:  # after the first step
            {work}
        return super().forward(x)

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = nn.Sequential(nn.Linear(4, 4), Second(4, 1))
model = fd.pipeline(model, split=["1"], loss_fn=nn.functional.mse_loss, microbatches=4)
model, _, loader = fd.prepare(model, None, DataLoader(data, batch_size=16))
for x, y in loader:
    fd.report(loss=model.step(x, y))
fd.result("done")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


@pytest.mark.release
def test_ranks_wait_for_a_slow_stage(cluster: Cluster) -> None:
    run = cluster.train(CELL.format(work=f"time.sleep({CONNECT_TIMEOUT.total_seconds() + 1})"))
    assert run.result == "done"


@pytest.mark.release
def test_the_error_of_a_stage_is_shown_and_the_other_rank_is_released(cluster: Cluster) -> None:
    with pytest.raises(RankError, match=r"failed on rank 1 .*: ArithmeticError: deep\nrank 0 waited for it"):
        cluster.train(CELL.format(work="raise ArithmeticError('deep')"))


@pytest.mark.release
def test_an_interrupt_ends_a_blocked_stage_and_the_next_cell_runs(cluster: Cluster) -> None:
    pressed: list[float] = []

    def press(run: Any) -> Any:
        def pressing() -> None:
            if len(run.dataframe()) and not pressed:
                pressed.append(time.monotonic())
                _thread.interrupt_main()

        return pressing

    with pytest.raises(KeyboardInterrupt):
        cluster.train(CELL.format(work="threading.Event().wait()"), watch=press)
    assert time.monotonic() - pressed[0] < 10
    assert cluster.train(CELL.format(work="pass")).result == "done"
