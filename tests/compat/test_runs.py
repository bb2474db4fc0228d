"""Tests that the run folders of the old commit 3ff8f67 can be read with all their content."""

from __future__ import annotations

import json
import math
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from farandole import load_run
from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.recovery.orphaned_runs import complete
from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status
from farandole.runs.store import RunStore
from farandole.runs.view import view_of
from farandole.server.panel.charts import Charts
from farandole.server.panel.runs import Filter, RunIndex
from farandole.server.panel.table.table import Table
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.compat.places import BROKEN, FAILS, FIXTURES, LOST, LOST_ELASTIC, REPORTS, WHOLE, copy_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOSSES = [1.0, 0.5, 1 / 3, math.nan, 0.2, 1 / 6]
LINES = "".join(f"line {step}\n" for step in range(8))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(copy_runs(tmp_path / "runs", REPORTS, FAILS, WHOLE, BROKEN, LOST, LOST_ELASTIC))


def test_the_store_lists_all_old_runs(store: RunStore) -> None:
    found = [(info.id, info.name, info.status) for info in store.list()]
    assert found == [
        (LOST_ELASTIC, "lost-elastic", Status.RUNNING),
        (LOST, "lost", Status.RUNNING),
        (BROKEN, "broken", Status.FAILED),
        (WHOLE, "whole", Status.FINISHED),
        (FAILS, "fails", Status.FAILED),
        (REPORTS, "reports", Status.FINISHED),
    ]


def test_all_of_run_json_is_read(store: RunStore) -> None:
    info = store.find("reports")
    assert (info.started, info.ended) == (1795437354.6569142, pytest.approx(1795437357.25, abs=0.1))
    assert (info.backend, info.cluster, info.size) == ("torch", "digits", 2)
    assert info.workers == ("digits-w0", "digits-w1")
    assert info.options == {"line": "--name reports"}
    assert info.versions == {"python": "3.11.7", "torch": "2.13.0+cpu", "farandole": "0.1.0", "numpy": "2.4.6"}
    assert (info.git, info.cwd, info.resumed_from, info.notices) == (None, "/home/farandole", None, ())
    assert (info.notebook, info.cell) == ("/home/farandole/course/digits.ipynb", "cell-3")
    assert info.kernel
    assert info.driver["host"] == "farandole"


def test_reports_are_a_data_frame(store: RunStore) -> None:
    frame = load_run("reports", store.folder)
    assert list(frame.columns) == ["rank", "time", "step", "epoch", "loss", "rank_loss"]
    for rank in range(2):
        own = frame[frame["rank"] == rank]
        assert own["step"].tolist() == [0, 1, 2, 3, 4, 5]
        assert own["epoch"].tolist() == [0, 0, 0, 1, 1, 1]
        assert own["loss"].tolist() == pytest.approx(LOSSES, nan_ok=True)
        assert own["rank_loss"].tolist() == pytest.approx([loss + rank for loss in LOSSES], nan_ok=True)
    assert frame["time"].between(1795437354, 1795437358).all()


def test_a_run_has_its_result_logs_and_code(store: RunStore) -> None:
    run = store.load("reports")
    assert run.result == {"rank": 0, "losses": [1.0, 0.5], "nothing": None}
    assert run.results[1]["rank"] == 1
    assert run.ranks()[1].log.lines()[-2:] == ["step 5 on rank 1", "no newline at the end"]
    assert run.ranks()[1].usage["memory_bytes"] > 0
    assert [view.worker for view in run.ranks()] == ["digits-w0", "digits-w1"]
    assert run.code.strip().startswith("import time\nimport farandole as fd\n")


def test_a_failed_run_has_its_error(store: RunStore) -> None:
    run = store.load("fails")
    assert run.error == "the cell failed on rank 1 (worker digits-w1): ValueError: the loss of rank 1 is out of range"
    assert run.ranks()[0].log.lines() == ["about to fail"]


def test_series_equal_those_in_the_folder(store: RunStore) -> None:
    """The view that the current code builds from an old run equals the stored one, which has fewer keys."""
    folder = store.folder / REPORTS
    kept, lines = (json.loads((folder / name).read_text()) for name in ("view.json", "lines.json"))
    run = store.load("reports")
    made = view_of(run, run.info.ended or 0.0)
    by_rank = view_of(run, run.info.ended or 0.0, per_rank=True)
    for view, stored in ((made, kept), (by_rank, lines)):
        old = [{key: one[key] for key in one.keys() - {"time", "epoch", "lowest", "highest"}} for one in view["series"]]
        assert old == stored["series"]
    same = ("id", "name", "status", "ended", "error", "notices", "backend", "size", "elapsed")
    assert {key: made[key] for key in same} == {key: kept[key] for key in same}
    assert set(made) == set(kept) | {"seconds_left", "reports", "output_bytes", "warnings", "sync"}
    assert {key for row in made["ranks"] for key in row} == {key for row in kept["ranks"] for key in row} | {"model"}
    [loss] = [series for series in made["series"] if series["name"] == "loss"]
    assert (loss["x_label"], loss["bad_x"]) == ("step", [3])


def test_a_run_whose_driver_is_gone_is_lost(store: RunStore) -> None:
    path = store.folder / LOST / "run.json"
    info = json.loads(path.read_text())
    info["driver"] |= {"host": socket.gethostname(), "pid": 4194304 + 1}
    path.write_text(json.dumps(info))
    assert store.find("lost").status is Status.LOST
    assert store.find("lost").error == "the driver ended before the run did"


def test_a_run_without_a_driver_is_completed_from_journals(store: RunStore) -> None:
    [run] = complete(store)
    assert (run.id, run.status, run.results) == (LOST, Status.FINISHED, {0: 12, 1: 13})
    again = store.load("lost")
    assert (again.status, again.results, again.info.notices) == (Status.FINISHED, {0: 12, 1: 13}, ())
    assert again.ended == pytest.approx(1795437381, abs=10)
    frame = load_run("lost", store.folder)
    for rank in range(2):
        own = frame[frame["rank"] == rank]
        assert own["step"].tolist() == list(range(12))
        assert own["value"].tolist() == [step * 0.5 for step in range(12)]
        text = (store.folder / LOST / "logs" / f"rank-{rank}.log").read_text()
        rest = "".join(f"line {step}\n" for step in range(8, 12))
        assert text == f"{LINES}half of a line, and the other half\n{rest}"
    assert not (store.folder / LOST / "records").exists()


def test_an_elastic_run_without_a_driver_is_completed_once_its_cluster_is_gone(store: RunStore) -> None:
    assert LOST_ELASTIC not in [run.id for run in complete(store)]
    [run] = complete(store, cluster="lost-elastic")
    assert (run.id, run.status, run.results) == (LOST_ELASTIC, Status.FINISHED, {0: 12, 1: 12})
    frame = load_run("lost-elastic", store.folder)
    for rank in range(2):
        assert frame[frame["rank"] == rank]["step"].tolist() == list(range(1, 13))
        text = (store.folder / LOST_ELASTIC / "logs" / f"rank-{rank}.log").read_text()
        assert text == "".join(f"line {step}\n" for step in range(1, 13))


def test_checkpoints_are_found(store: RunStore) -> None:
    [checkpoint] = store.load("broken").checkpoints
    assert (checkpoint.step, checkpoint.time, checkpoint.bytes) == (6, 1795437358.8352349, 39325)
    assert checkpoint.path == store.folder / BROKEN / "checkpoints" / "step-6"
    assert store.load("whole").checkpoints == ()


def test_a_run_is_found_by_a_prefix_of_its_id(store: RunStore) -> None:
    assert store.find("20261123-123554").id == REPORTS
    with pytest.raises(RunNotFoundError, match="2 runs begin with '20261123-123557'"):
        store.find("20261123-123557")


def test_the_panel_lists_old_runs(store: RunStore, tmp_path: Path) -> None:
    index = RunIndex(store.folder, tmp_path)
    page = index.page(active=[], wanted=Filter())
    assert [run["name"] for run in page["runs"]] == ["lost-elastic", "lost", "broken", "whole", "fails", "reports"]
    assert index.page(active=[], wanted=Filter(text="digits.ipynb", status="finished"))["total"] == 2
    summary: dict[str, Any] = dict(page["runs"][-1])
    seconds = summary.pop("seconds")
    assert seconds == pytest.approx(summary["ended"] - summary["started"])
    assert summary == {
        "id": REPORTS,
        "name": "reports",
        "status": "finished",
        "goes_on": False,
        "error": None,
        "started": 1795437354.6569142,
        "ended": summary["ended"],
        "backend": "torch",
        "cluster": "digits",
        "size": 2,
        "notebook": "/home/farandole/course/digits.ipynb",
        "kernel": summary["kernel"],
        "cell": "cell-3",
        "resumed_from": None,
    }


def test_the_page_of_runs_shows_old_runs(store: RunStore, tmp_path: Path) -> None:
    table, give_up = Table(RunIndex(store.folder, tmp_path), Charts()), time.monotonic() + 30
    page = table.page(active=[], wanted=Filter(), sort="started")
    while not page["complete"] and time.monotonic() < give_up:
        page = table.page(active=[], wanted=Filter(), sort="started")
    assert [run["name"] for run in page["runs"]] == ["lost-elastic", "lost", "broken", "whole", "fails", "reports"]
    row = page["runs"][-1]
    losses = [loss for loss in LOSSES if not math.isnan(loss)]
    values = dict(zip(page["columns"], row["values"], strict=True))
    assert values["series.loss.last"] == pytest.approx(losses[-1], rel=1e-3)
    assert values["series.loss.lowest"] == pytest.approx(min(losses), rel=1e-3)
    assert row["bytes"] is not None
    assert row["bytes"] > 0
    assert (page["config"], row["tags"], row["notes"]) == ([], [], "")


@pytest.fixture
def shell(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("FARANDOLE_RUNS", str(store.folder))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "farandole")
    yield shell
    InteractiveShell.clear_instance()


def test_the_magic_lists_and_shows_old_runs(shell: InteractiveShell) -> None:
    names = ["lost-elastic", "lost", "broken", "whole", "fails", "reports"]
    listed = str(shell.run_line_magic("runs", "")).splitlines()
    assert [next(name for name in names if name in line) for line in listed[1:]] == names
    with capture_output() as captured:
        shell.run_line_magic("runs", "show reports")
    [picture] = captured.outputs
    assert "loss" in picture.data["text/html"]
    assert "finished" in picture.data["text/html"]


def test_the_status_of_an_old_driver_is_read(tmp_path: Path) -> None:
    """A notebook that was open during an upgrade still runs the old code and writes its status in the old format."""
    shutil.copytree(FIXTURES / "runs" / ".desks", tmp_path / ".desks", copy_function=shutil.copy)
    [status] = driver_statuses(tmp_path)
    assert (status.cluster, status.local, status.backend, status.busy) == ("lost-elastic", False, "torch", True)
    assert status.notebook == "/home/farandole/course/lost-elastic.ipynb"
    assert list(status.workers) == ["lost-elastic-w0", "lost-elastic-w1"]
    assert list(status.runs) == [LOST_ELASTIC]
