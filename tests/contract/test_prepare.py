"""On every backend and any number of ranks, fd.prepare gives the same result as a single process with whole batches."""

from pathlib import Path

import pytest
import torch

from tests.contract.train_on_ranks import CASES
from tests.contract.worlds import run, world

OTHERS = [("horovod", 3), *((backend, size) for backend in ("torch", "horovod") for size in (2, 4))]
"""The worlds of `make release`. tests/contract/test_sync.py compares three ranks of Horovod for each change."""


def _run(backend: str, size: int, folder: Path) -> Path:
    with world(backend, size) as environments:
        run(environments, "tests.contract.train_on_ranks", folder)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run("none", 1, tmp_path_factory.mktemp("alone"))


@pytest.fixture(
    scope="module",
    params=[("torch", 3), *(pytest.param(world, marks=pytest.mark.release) for world in OTHERS)],
    ids=str,
)
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    backend, size = request.param
    return _run(backend, size, tmp_path_factory.mktemp("together")), size


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_agree_with_one_process(alone: Path, together: tuple[Path, int], case: tuple[str, int]) -> None:
    folder, size = together
    name = "-".join(map(str, case))
    expected = torch.load(alone / f"{name}.0.pt")
    for rank in range(size):
        found = torch.load(folder / f"{name}.{rank}.pt")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}")
