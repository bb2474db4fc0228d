"""A model that a mesh shards over four ranks trains as on one rank, and each rank holds its share of it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.mesh_on_ranks import CASES, MESHES, QUICK
from tests.contract.worlds import run, world

RANKS = 4
DIFFERENCES = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 0.05}
"""The largest difference of parameters, relative to their norm."""
LOSSES = {"float32": 1e-5, "float64": 1e-5, "bfloat16": 0.05}
"""The largest difference of losses, and of norms of gradients relative to them."""
OWN = 1.15 / RANKS
"""The largest share of parameters, gradients and optimizer state that a rank of four may hold if all of them share."""
EVERY_SECONDS = 900
"""Time limit for all cases, one of which compiles the model on four ranks."""

Case = tuple[str, str, str]


def _trained(folder: Path, cases: str, seconds: float = 120) -> Path:
    for backend, size in (("none", 1), ("torch", RANKS)):
        with world(backend, size) as environments:
            run(environments, "tests.contract.mesh_on_ranks", folder, cases, seconds=seconds)
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("quick"), "quick")


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _trained(tmp_path_factory.mktemp("every"), "all", EVERY_SECONDS)


def found(folder: Path, case: Case, size: int) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{'-'.join(case)}.{size}.{rank}.pt") for rank in range(size)]


def mean_losses(ranks: list[dict[str, Any]], copies: int) -> list[float]:
    """Return the loss of each whole batch, of which ``copies`` ranks in a row have the same share."""
    steps = zip(*(rank["losses"] for rank in ranks[::copies]), strict=True)
    return [sum(n * loss for n, loss in step) / sum(n for n, _ in step) for step in steps]


def check(folder: Path, case: Case) -> None:
    mesh, _, dtype = case
    [alone], ranks = found(folder, case, 1), found(folder, case, RANKS)
    for rank in ranks:
        assert rank["model"].keys() == alone["model"].keys()
        for name, expected in alone["model"].items():
            assert (rank["model"][name] - expected).norm() <= DIFFERENCES[dtype] * expected.norm(), name
        torch.testing.assert_close(rank["norm"], alone["norm"], rtol=LOSSES[dtype], atol=0)
    losses = mean_losses(ranks, MESHES[mesh].get("tensor", 1))
    assert losses == pytest.approx(mean_losses([alone], 1), abs=LOSSES[dtype])
    assert losses[-1] < losses[0]
    if "shard" in mesh and "tensor" not in mesh and "data" not in mesh:
        assert max(rank["bytes"] for rank in ranks) <= OWN * alone["bytes"]


@pytest.mark.parametrize("case", QUICK, ids="-".join)
def test_four_ranks_train_as_one(quick: Path, case: Case) -> None:
    check(quick, case)


def test_the_figures_of_each_rank_are_its_shares_and_what_it_sends(quick: Path) -> None:
    for rank in range(RANKS):
        for found in torch.load(quick / f"memory.{rank}.pt"):
            figures = found["figures"]
            assert sum(figures[f"{name}_bytes"] for name in ("parameters", "gradients", "optimizer")) == found["bytes"]
            assert figures["step_sent_bytes"] == found["sent"] > 0


@pytest.mark.release
@pytest.mark.timeout(2 * EVERY_SECONDS)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_four_ranks_train_as_one_on_every_mesh(every: Path, case: Case) -> None:
    check(every, case)
