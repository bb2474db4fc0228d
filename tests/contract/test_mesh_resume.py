"""A checkpoint of a sharded model is continued on another mesh, or on one rank, as if the training had not ended."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.contract.mesh_resume_on_ranks import SAVED, STEPS
from tests.contract.worlds import run, world

pytestmark = pytest.mark.release

CLOSE = 1e-9
WRITERS = [{"shard": 4}, {"shard": 2, "tensor": 2}]
READERS = [{"shard": 3}, None, {"shard": 2}, {"data": 2, "shard": 2}, {"tensor": 2}]


def trained(folder: Path, mesh: dict[str, int] | None, *, resume: Path | None = None, last: int) -> Path:
    size = torch.tensor(list((mesh or {}).values())).prod().long().item()
    if resume is not None:
        shutil.copytree(resume / "own", folder / "from")
    with world("torch" if mesh else "none", int(size)) as environments:
        name = "from" if resume is not None else ""
        run(environments, "tests.contract.mesh_resume_on_ranks", folder, json.dumps(mesh), name, last)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = trained(tmp_path_factory.mktemp("alone"), None, last=STEPS)
    return torch.load(folder / "model.1.0.pt")


@pytest.fixture(scope="module", params=WRITERS, ids=json.dumps)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("written"), request.param, last=SAVED + 1)


@pytest.mark.parametrize("mesh", READERS, ids=json.dumps)
def test_it_continues(
    alone: dict[str, torch.Tensor], written: Path, mesh: dict[str, int] | None, tmp_path: Path
) -> None:
    folder = trained(tmp_path, mesh, resume=written, last=STEPS)
    for path in folder.glob("model.*.pt"):
        found = torch.load(path)
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            assert (found[name] - expected).norm() <= CLOSE * expected.norm(), name


def test_each_rank_writes_its_part(written: Path) -> None:
    files = list((written / "own" / f"step-{SAVED}").glob("__*.distcp"))
    assert {path.name.split("_")[2] for path in files} == set("0123")
