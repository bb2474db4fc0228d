"""Processes that verify a checkpoint together read each file once, and one of them finds the damage."""

from pathlib import Path

import pytest
import torch
from farandole.ranks.checkpoints import files
from farandole.runs.checkpoints import intact
from farandole.runs.checkpoints.intact import DamagedError, verified


@pytest.fixture
def made(tmp_path: Path) -> Path:
    state = {"parts": {"model": {"weight": torch.ones(5)}}, "values": {}}
    return files.write(tmp_path, files.Content(step=1, state=state, rngs=[{}], seed=0))


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_each_file_is_in_one_share(made: Path, shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    described = intact.described

    def recorded(path: Path) -> dict[str, object]:
        read.append(path.name)
        return described(path)

    monkeypatch.setattr(intact, "described", recorded)
    manifests = [verified(made, share=share, shares=shares) for share in range(shares)]
    assert all(manifest == manifests[0] for manifest in manifests)
    assert sorted(read) == sorted(manifests[0]["files"])


def test_one_share_finds_the_damage(made: Path) -> None:
    next(made.glob("*.distcp")).write_bytes(b"x")
    found = []
    for share in range(3):
        try:
            verified(made, share=share, shares=3)
        except DamagedError as error:
            found.append(str(error))
    assert found == ["__0_0.distcp has changed since it was written"]
