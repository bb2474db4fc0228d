"""A checkpoint of a sharded model is continued on another mesh, or on one rank, as if the training had not ended."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from farandole.ranks.checkpoints import files
from farandole.runs.checkpoints.full_model import write_model
from farandole.runs.checkpoints.intact import described
from safetensors.torch import load_file

from tests.contract.mesh_resume_on_ranks import SAVED, STEPS
from tests.contract.worlds import run, world

CLOSE = 1e-9
Mesh = dict[str, int] | None


def quick_and_others(quick: Mesh, *others: Mesh) -> list[object]:
    return [quick, *(pytest.param(mesh, marks=pytest.mark.release) for mesh in others)]


WRITERS = quick_and_others({"shard": 2, "tensor": 2}, {"shard": 4}, None)
READERS = quick_and_others({"shard": 2}, {"shard": 3}, None, {"data": 2, "shard": 2}, {"tensor": 2})


def trained(folder: Path, mesh: Mesh, *, resume: Path | None = None, last: int) -> Path:
    if resume is not None:
        shutil.copytree(resume / "own", folder / "from")
        add_damaged(folder / "from")
    with world("torch" if mesh else "none", size_of(mesh)) as environments:
        name = "from" if resume is not None else ""
        run(environments, "tests.contract.mesh_resume_on_ranks", folder, json.dumps(mesh), name, last)
    return folder


def size_of(mesh: Mesh) -> int:
    return int(torch.tensor(list((mesh or {}).values())).prod())


def add_damaged(checkpoints: Path) -> None:
    """Add two newer checkpoints. A file of the first has changed, and the second was written with a wrong file."""
    for step in (SAVED + 1, SAVED + 2):
        path = checkpoints / f"step-{step}"
        shutil.copytree(checkpoints / f"step-{SAVED}", path)
        tensors = max(path.glob("*.distcp"))
        tensors.write_bytes(bytes(tensors.stat().st_size))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][tensors.name] = described(tensors)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = trained(tmp_path_factory.mktemp("alone"), None, last=STEPS)
    return torch.load(folder / "model.1.0.pt")


@pytest.fixture(scope="module", params=WRITERS, ids=json.dumps)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mesh]:
    return trained(tmp_path_factory.mktemp("written"), request.param, last=SAVED + 1), request.param


@pytest.mark.parametrize("mesh", READERS, ids=json.dumps)
def test_it_continues(alone: dict[str, torch.Tensor], written: tuple[Path, Mesh], mesh: Mesh, tmp_path: Path) -> None:
    folder = trained(tmp_path, mesh, resume=written[0], last=STEPS)
    models = list(folder.glob("model.*.pt"))
    assert len(models) == size_of(mesh)
    for path in models:
        found = torch.load(path)
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            assert (found[name] - expected).norm() <= CLOSE * expected.norm(), name


def test_each_rank_writes_its_part(written: tuple[Path, Mesh]) -> None:
    folder, mesh = written
    found = list((folder / "own" / f"step-{SAVED}").glob("__*.distcp"))
    assert {path.name.split("_")[2] for path in found} == {str(rank) for rank in range(size_of(mesh))}


def test_the_whole_model_is_written_to_one_file(written: tuple[Path, Mesh], tmp_path: Path) -> None:
    checkpoint = written[0] / "own" / f"step-{SAVED}"
    write_model([checkpoint], "model", tmp_path / "model.safetensors")
    found, expected = load_file(tmp_path / "model.safetensors"), files.read(checkpoint).state["parts"]["model"]
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.release
def test_a_rank_that_is_lost_during_a_write_leaves_no_traceback(tmp_path: Path) -> None:
    with world("torch", 2) as environments:
        run(environments, "tests.contract.mesh_lost_on_ranks", tmp_path, killed={1})
