"""A run lists its checkpoints on disk, and a new run finds the run to resume from."""

import json
import shutil
from pathlib import Path

import pytest
from farandole.exceptions import RunNotFoundError, UsageError
from farandole.protocol import Kind, Status
from farandole.runs.checkpoints.found import checkpoints_of
from farandole.runs.run import Run
from farandole.runs.store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def _run(store: RunStore, steps: tuple[int, ...] = (), *, name: str = "", cwd: str = "/here") -> Run:
    run = store.create(code="pass", backend="torch", size=2, workers=["w0", "w1"], name=name, cwd=cwd)
    for order, step in enumerate(steps):
        place = run.folder / "checkpoints" / f"step-{step}"
        place.mkdir(parents=True)
        manifest = {"step": step, "time": 1000.0 + order, "bytes": 10 * step, "files": {}}
        (place / "manifest.json").write_text(json.dumps(manifest))
    run.finish(Status.FINISHED)
    return run


def test_a_run_lists_its_checkpoints_oldest_first(store: RunStore) -> None:
    run = _run(store, (9, 10, 2))
    assert [(found.step, found.time, found.bytes) for found in run.checkpoints] == [
        (9, 1000, 90),
        (10, 1001, 100),
        (2, 1002, 20),
    ]
    assert store.load(run.id).checkpoints == run.checkpoints


def test_a_checkpoint_set_aside_by_a_killed_writer_counts_unless_it_was_replaced(store: RunStore) -> None:
    run = _run(store, (3, 6))
    folder = run.folder / "checkpoints"
    (folder / "step-6").rename(folder / ".step-6.old")
    assert [(found.step, found.path.name) for found in run.checkpoints] == [(3, "step-3"), (6, ".step-6.old")]
    assert store.to_resume(run.id).id == run.id
    shutil.copytree(folder / ".step-6.old", folder / "step-6")
    assert [found.path.name for found in run.checkpoints] == ["step-3", "step-6"]


def test_unreadable_files_are_not_checkpoints(store: RunStore) -> None:
    run = _run(store, (1, 2, 3))
    folder = run.folder / "checkpoints"
    (folder / "step-1" / "manifest.json").unlink()
    (folder / "step-2" / "manifest.json").write_text("[1]")
    (folder / ".step-4.new").mkdir()
    assert [found.step for found in run.checkpoints] == [3]
    assert checkpoints_of(folder / "nowhere") == ()


def test_a_run_is_found_by_id_prefix_or_name(store: RunStore) -> None:
    run = _run(store, (1,), name="digits")
    _run(store, name="digits")  # a newer run without a checkpoint
    for key in (run.id, "digits"):
        assert store.to_resume(key).id == run.id


def test_without_a_key_it_is_the_last_run_with_the_name_or_in_the_folder(store: RunStore) -> None:
    named = _run(store, (1,), name="digits", cwd="/there")
    here = _run(store, (1,), name="other")
    _run(store)
    _run(store, (1,), cwd="/elsewhere")
    assert store.to_resume("", name="digits", cwd=Path("/here")).id == named.id
    assert store.to_resume("", cwd=Path("/here")).id == here.id


def test_without_a_checkpoint_the_error_names_the_remedy(store: RunStore) -> None:
    run = _run(store)
    with pytest.raises(UsageError, match=f"run {run.id} has no checkpoint.*fd.checkpoint"):
        store.to_resume(run.id)
    with pytest.raises(UsageError, match="no run with the name 'digits' has a checkpoint"):
        store.to_resume("", name="digits")
    with pytest.raises(UsageError, match="no run from /here has a checkpoint.*--resume ID"):
        store.to_resume("", cwd=Path("/here"))
    with pytest.raises(RunNotFoundError):
        store.to_resume("nope")


def test_a_run_records_what_it_resumed_and_the_notices_of_ranks(store: RunStore) -> None:
    run = store.create(code="pass", backend="torch", size=1, workers=["w0"], resumed_from="20260101-000000-abcd")
    run.add_records(0, {"kind": Kind.NOTICE, "rank": 0, "time": 1.0, "text": "the disk is full", "warning": True})
    run.add_records(0, {"kind": Kind.NOTICE, "rank": 0, "time": 2.0, "text": "resumed from step 3"})
    run.finish(Status.FINISHED)
    kept = json.loads((run.folder / "run.json").read_text())
    assert kept["resumed_from"] == "20260101-000000-abcd"
    assert (kept["notices"], kept["warnings"]) == (["the disk is full", "resumed from step 3"], ["the disk is full"])
    assert store.load(run.id).resumed_from == "20260101-000000-abcd"
