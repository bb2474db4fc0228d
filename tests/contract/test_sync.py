"""The modes of fd.sync on both backends, compared with a single process that trains on whole batches."""

from pathlib import Path

import pytest
import torch
from farandole.protocol import is_collective_failure

from tests.contract.sync_on_ranks import CLOSE, EXACT, LOSE_RANK, LOSE_SERVER
from tests.contract.worlds import run, world

WORLDS = [("horovod", 3), *(pytest.param(("torch", size), marks=pytest.mark.release) for size in (2, 3))]
BACKENDS = ["torch", pytest.param("horovod", marks=pytest.mark.release)]


def _run(backend: str, size: int, folder: Path) -> Path:
    with world(backend, size) as environments:
        run(environments, "tests.contract.sync_on_ranks", folder)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run("none", 1, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module", params=WORLDS, ids=str)
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    backend, size = request.param
    return _run(backend, size, tmp_path_factory.mktemp("together")), size


@pytest.mark.parametrize("name", EXACT)
def test_an_average_after_each_step_agrees_with_one_process(alone: Path, together: tuple[Path, int], name: str) -> None:
    folder, size = together
    expected = torch.load(alone / "step.0.pt")
    for rank in range(size):
        found = torch.load(folder / f"{name}.{rank}.pt")
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CLOSE)
def test_ranks_have_equal_parameters_after_an_epoch(alone: Path, together: tuple[Path, int], name: str) -> None:
    folder, size = together
    first = torch.load(folder / f"{name}.0.pt")
    for rank in range(1, size):
        torch.testing.assert_close(torch.load(folder / f"{name}.{rank}.pt"), first, rtol=0, atol=0)
    # The model has been trained as the model of one process, though not by the same steps.
    start, expected = torch.load(alone / "step.0.pt"), first
    assert all(torch.dist(start[key], expected[key]) < 0.5 for key in start)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_has_lost_the_parameter_server_fails_as_in_a_collective(tmp_path: Path, backend: str) -> None:
    with world(backend, 3) as environments:
        run(environments, "tests.contract.sync_on_ranks", tmp_path, LOSE_SERVER, killed={0})
    for rank in (1, 2):
        error = (tmp_path / f"lost.{rank}").read_text()
        name, _, message = error.partition(": ")
        assert message.startswith("the parameter server on rank 0 is gone"), error
        # The driver then looks for the rank that has left, and an elastic run continues without it.
        assert is_collective_failure(name, message), error


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_is_killed_during_an_average_is_an_error_of_the_world(tmp_path: Path, backend: str) -> None:
    with world(backend, 3) as environments:
        run(environments, "tests.contract.sync_on_ranks", tmp_path, LOSE_RANK, killed={2})
    for rank in (0, 1):
        error = (tmp_path / f"lost.{rank}").read_text()
        name, _, message = error.partition(": ")
        assert is_collective_failure(name, message), error
