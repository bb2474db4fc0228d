"""Cells with users' own libraries, as the documentation of each library shows them, train on all ranks of a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from farandole import Cluster
from farandole.exceptions import RankError
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import SUM, text

CELLS = Path(__file__).parent / "cells"
CELL = {path.stem: path.read_text() for path in CELLS.glob("*.py")}
RESULT = """
weights = [value for each in model.parameters() for value in each.detach().flatten().tolist()]
"""
WAIT = """
import time
from pathlib import Path
deadline = time.monotonic() + 60
while not Path({mark!r}).exists():
    assert time.monotonic() < deadline, "no output of this cell has been shown"
    time.sleep(0.01)
import farandole
farandole.result(weights)
"""
"""Code at the end of a cell that waits until the driver has shown output of the cell."""
ORDINARY = ("accelerate_tour", "lightning_trainer")
"""The cells that run in CI. `make release` runs all cells."""
OTHERS = sorted(CELL.keys() - set(ORDINARY))
WRITTEN = {
    "lightning_trainer": ["rank-0/lightning_logs/version_0/checkpoints/epoch=1-step=8.ckpt"],
    "transformers_trainer": ["rank-0/my_awesome_model/checkpoint-8/model.safetensors"],
}
"""The checkpoints that cells write by default. Rank 0 writes one at the end of the training."""
CHOSEN = [*ORDINARY, *(pytest.param(name, marks=pytest.mark.release) for name in OTHERS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


def move_ranks(cluster, folder):
    """Set a separate working directory for each rank, so that the path of a file shows which rank wrote it."""
    for rank in range(2):
        (folder / f"rank-{rank}").mkdir(parents=True)
    cluster.run(f"import os, farandole\nos.chdir(os.path.join({str(folder)!r}, f'rank-{{farandole.rank()}}'))")


def written(folder):
    """Return the paths of the checkpoints in a folder."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in {".ckpt", ".safetensors"}]


def trained(cluster, name, folder):
    """Run a cell on all ranks, which work in a folder. Return the weights of each rank and the cell's output."""
    move_ranks(cluster, folder)
    shown, mark = [], folder / "shown"

    def show(block):
        shown.append(block)
        mark.touch()

    run = cluster.train(CELL[name] + RESULT + WAIT.format(mark=str(mark)), backend="torch", show=show)
    assert run.status == Status.FINISHED
    assert written(folder) == WRITTEN.get(name, [])
    # Some progress bars print lines as rich output.
    return run.results, text(shown) + "".join((block.bundle or {}).get("text/plain", "") for block in shown)


def trained_alone(name, folder):
    """Run a cell as a script in one process, which works in a folder, and return its weights."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    script = CELL[name] + RESULT + "import json\nprint(json.dumps(weights))"
    command, environment = [sys.executable, "-c", script], os.environ | alone
    printed = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=240
    )
    return json.loads(printed.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHOSEN)
def test_a_cell_of_a_library_trains_on_all_ranks_twice_in_a_row(cluster, name, tmp_path):
    results, shown = trained(cluster, name, tmp_path / "first")
    assert "2 processes" in shown or "processes" not in CELL[name]
    assert results[0] == results[1]
    alone = trained_alone(name, tmp_path)
    assert len(alone) == len(results[0])
    assert max(abs(one - other) for one, other in zip(alone, results[0], strict=True)) > 1e-5
    again, _ = trained(cluster, name, tmp_path / "second")
    assert again[0] == again[1] == results[0]
    assert text(cluster.run(SUM["torch"])) == "2\n"


@pytest.mark.release
def test_torchmetrics_computes_over_the_data_of_all_ranks_twice_in_a_row(cluster):
    for _ in range(2):
        cluster.run(CELL["metrics_of_all_ranks"] + "\naccuracy = float(acc)")
        found = cluster.pull("accuracy", "hits", "count").values()
        [accuracy] = {each["accuracy"] for each in found}
        assert accuracy == pytest.approx(sum(each["hits"] for each in found) / sum(each["count"] for each in found))
        assert len({each["hits"] / each["count"] for each in found}) == 2


SIZES = """
from accelerate import Accelerator
import lightning as L
print(Accelerator().num_processes, "by Accelerate")
print(L.Trainer(devices=2, strategy="ddp", logger=False, enable_checkpointing=False).world_size, "by Lightning")
"""


@pytest.mark.release
def test_libraries_follow_a_change_of_the_backend(tmp_path):
    shown, store = [], RunStore(tmp_path)
    with Cluster.start(local=True, ranks=2, backend="horovod", store=store) as cluster:
        for _ in range(2):
            shown.clear()
            with pytest.raises(RankError, match=r"strategy='ddp'\)` is not compatible with an interactive"):
                cluster.train(SIZES, backend="horovod", show=shown.append)
            assert text(shown).startswith("1 by Accelerate")
            notices = store.list()[0].notices
            assert [one.split()[0] for one in notices] == ["accelerate,", "lightning"]
            assert all("--backend torch" in one for one in notices)
            # Each cell looks for libraries that earlier cells have imported. These have had their notice.
            assert text(cluster.run("pass")) == ""
            shown.clear()
            run = cluster.train(SIZES, backend="torch", show=shown.append)
            assert "2 by Accelerate" in text(shown)
            assert "2 by Lightning" in text(shown)
            assert run.notices == ()
