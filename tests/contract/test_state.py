"""Every backend shares, writes and resumes a state in the same way, even with a different number of ranks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.contract.state_on_ranks import SAMPLES
from tests.contract.worlds import run, world

TORCH = ["torch", pytest.param("horovod", marks=pytest.mark.release)]


def _train(backend: str, size: int, out: Path, **task: Any) -> list[dict[str, Any]]:
    """Train on each rank, and return the results by rank."""
    out.mkdir()
    task = {"folder": str(out / "checkpoints"), "out": str(out)} | task
    with world(backend, size) as environments:
        run(environments, "tests.contract.state_on_ranks", json.dumps(task))
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]


def _steps(ranks: list[dict[str, Any]]) -> dict[int, tuple[int, list[int], float]]:
    """Return the epoch, the samples of all ranks and the mean loss for each step."""
    found = {}
    for parts in zip(*(rank["seen"] for rank in ranks), strict=True):
        ids = [number for part in parts for number in part["ids"]]
        found[parts[0]["step"]] = (parts[0]["epoch"], ids, sum(part["loss"] for part in parts) / len(ids))
    return found


@pytest.mark.parametrize("backend", TORCH)
def test_resuming_gives_the_losses_of_an_uninterrupted_run(backend: str, tmp_path: Path) -> None:
    whole = _train(backend, 2, tmp_path / "whole", noise=True)
    _train(backend, 2, tmp_path / "first", noise=True, steps=13)
    resumed = _train(backend, 2, tmp_path / "second", noise=True, resume=str(tmp_path / "first"))
    assert [rank["resumed"] for rank in resumed] == [10, 10]
    for before, after in zip(whole, resumed, strict=True):
        assert [step["ids"] for step in after["seen"]] == [step["ids"] for step in before["seen"][10:]]
        losses = [step["loss"] for step in before["seen"][10:]]
        assert [step["loss"] for step in after["seen"]] == pytest.approx(losses, rel=1e-6)
        assert after["loader"] == before["loader"]


# tests/contract/test_resume.py tests the same with cells on a cluster.
@pytest.mark.release
@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_another_number_of_ranks_continues_with_the_same_samples(backend: str, tmp_path: Path) -> None:
    first = _steps(_train(backend, 2, tmp_path / "first", steps=13))
    for size in (1, 4):
        name = backend if size > 1 else "none"
        ranks = _train(name, size, tmp_path / f"on-{size}", resume=str(tmp_path / "first"))
        second = _steps(ranks)
        joined = {step: first[step] for step in range(1, 11)} | second
        assert sorted(second) == list(range(11, 22))
        for epoch in range(3):
            ids = Counter(number for of, samples, _ in joined.values() if of == epoch for number in samples)
            assert ids == Counter(range(SAMPLES))
        for step in (11, 12, 13):  # the first run made three steps after its last checkpoint
            assert second[step][2] == pytest.approx(first[step][2], rel=1e-4)
