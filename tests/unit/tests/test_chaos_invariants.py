"""Tests that the checks of the soak test accept an undamaged run, and find each kind of damage in a run's files."""

import json
import shutil

import pytest
import torch
from farandole.protocol import Report, Status, report_to_json
from farandole.ranks.checkpoints import files
from farandole.ranks.checkpoints.files import Content
from farandole.runs.store import RunStore

from tests.chaos.cell import SAMPLES, Journals, Life, Step, longest_gap, steps_lost
from tests.chaos.invariants import QUEUED_SECONDS, broken

STEPS = 31


def step(number, rank, pid=None):
    return Step(rank=rank, size=2, step=number, at=1000.5 + number + rank / 4, pid=pid or rank, parent=1, worker="w")


@pytest.fixture
def lives():
    return [Life(steps=[step(number, rank) for number in range(1, STEPS + 1)], ended=True) for rank in (0, 1)]


@pytest.fixture
def folder(tmp_path, lives):
    """The files of an undamaged run."""
    run = RunStore(tmp_path / "runs").create(code="x", backend="torch", size=2, workers=["w0", "w1"])
    for life in lives:
        for one in life.steps:
            values = {"size": 2.0, "at": one.at}
            run.add_records(one.rank, report_to_json(Report(rank=one.rank, time=one.at, step=one.step, values=values)))
            run.add_log(one.rank, f"step {one.step} at {one.at!r}\n")
    for rank in (0, 1):
        run.add_records(rank, {"kind": "result", "value": {"step": STEPS, "seen": list(range(SAMPLES))}})
    run.finish(Status.FINISHED)
    state = {"commits": STEPS, "values": {"step": STEPS}, "parts": {"model": {"weight": torch.ones(3)}}}
    files.write(run.folder / "checkpoints", Content(step=STEPS, state=state, rngs=[{}], seed=0))
    return run.folder


def edit_record(folder, **changes):
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_lines(path, change):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(change(lines)))


def test_an_undamaged_run_has_no_problem(folder, lives):
    assert broken(folder, lives) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"status": "running"}, "the run is running"),
        ({"results": {}}, "the run is finished, with 0 results"),
        ({"status": "failed", "error": ""}, "for the reason ''"),
        ({"status": "failed", "error": "KeyboardInterrupt"}, "for the reason 'KeyboardInterrupt'"),
        ({"status": "failed", "error": "the cell failed on rank 1: NameError"}, "failed on rank 1: NameError"),
        ({"status": "nonsense"}, "run.json cannot be read"),
    ],
)
def test_a_run_without_a_result_or_a_clear_reason_is_found(folder, lives, changes, says):
    edit_record(folder, **changes)
    [problem] = broken(folder, lives)
    assert says in problem


def test_a_run_with_a_clear_reason_may_have_failed(folder, lives):
    edit_record(folder, status="failed", results={}, error="rank 1 (worker w1) was lost, so it was stopped")
    assert broken(folder, lives) == []


def test_a_damaged_run_json_is_found(folder, lives):
    path = folder / "run.json"
    path.write_text(path.read_text()[:100])
    [problem] = broken(folder, lives)
    assert "run.json cannot be read" in problem


@pytest.mark.parametrize("rank", [0, 1])
def test_an_incomplete_line_is_found_in_the_middle_and_at_the_end(folder, lives, rank):
    path = folder / f"metrics/rank-{rank}.jsonl"
    edit_lines(path, lambda lines: [*lines[:4], lines[4][:20] + "\n", *lines[5:]])
    assert f"metrics/rank-{rank}.jsonl:5 is damaged" in broken(folder, lives)[0]
    edit_lines(path, lambda lines: [*lines[:4], *lines[5:], '{"kind"'])
    assert any("ends in the middle of a line" in problem for problem in broken(folder, lives))


def test_a_missing_report_is_found(folder, lives):
    edit_lines(folder / "metrics/rank-1.jsonl", lambda lines: [*lines[:6], *lines[8:]])
    assert broken(folder, lives) == ["2 reports of process 1 (last rank 1) are missing, of steps 7 to 8"]


def test_only_the_last_output_of_a_killed_process_may_be_missing(folder, lives):
    killed = Life(steps=lives[1].steps, ended=False)
    edit_lines(folder / "metrics/rank-1.jsonl", lambda lines: lines[: -int(QUEUED_SECONDS)])
    edit_lines(folder / "logs/rank-1.log", lambda lines: lines[: -int(QUEUED_SECONDS)])
    assert broken(folder, [lives[0], killed]) == []
    edit_lines(folder / "metrics/rank-1.jsonl", lambda lines: lines[:-2])
    assert "reports of process 1 (last rank 1) are missing" in broken(folder, [lives[0], killed])[0]


def test_a_duplicate_report_is_found(folder, lives):
    edit_lines(folder / "metrics/rank-0.jsonl", lambda lines: [*lines, lines[3]])
    assert broken(folder, lives) == ["rank 0's report of 1004.5 appears 2 times"]


def test_logs_are_checked_line_by_line(folder, lives):
    path = folder / "logs/rank-0.log"
    whole = path.read_text()
    edit_lines(path, lambda lines: [*lines, lines[3]])
    assert broken(folder, lives) == ["a log line appears 2 times: step 4 at 1004.5"]
    path.write_text(whole.replace("step 4 at 1004.5\n", "step 4 at 10"))
    assert "a line of a log is damaged: 'step 4 at 10step 5 at 1005.5'" in broken(folder, lives)
    path.write_text(whole.replace("step 4 at 1004.5\n", ""))
    assert broken(folder, lives) == ["1 lines of the log of process 0 (last rank 0) are missing, of steps 4 to 4"]


def test_a_damaged_checkpoint_is_found(folder, lives):
    [data] = (folder / f"checkpoints/step-{STEPS}").glob("*.distcp")
    data.write_bytes(data.read_bytes()[:-1])
    [problem] = broken(folder, lives)
    assert f"the checkpoint step-{STEPS} is damaged" in problem


def test_remains_of_a_checkpoint_are_found(folder, lives):
    (folder / "checkpoints/.step-40.new").mkdir()
    assert broken(folder, lives) == [".step-40.new is left over from a checkpoint"]
    shutil.rmtree(folder / "checkpoints")
    assert broken(folder, lives) == ["there is no checkpoint"]


@pytest.mark.parametrize("seen", [[*range(SAMPLES), 3, 3], list(range(1, SAMPLES)) * 2])
def test_skipped_and_repeated_samples_are_found(folder, lives, seen):
    edit_record(folder, results={"0": {"step": STEPS, "seen": seen}})
    [problem] = broken(folder, lives)
    assert "rank 0 has seen samples" in problem


def test_reading_a_journal_continues_where_it_stopped(tmp_path):
    lines = [json.dumps(vars(step(number, 0))) for number in (1, 2)]
    journals, path = Journals(tmp_path), tmp_path / "journal-w0-1"
    path.write_text(f"{lines[0]}\n{lines[1][:20]}")
    (tmp_path / "journal-w1-1").touch()
    assert journals.read() == [Life(steps=[step(1, 0)])]
    path.write_text(f"{lines[0]}\n{lines[1]}\n")
    assert journals.read() == [Life(steps=[step(1, 0), step(2, 0)])]
    path.write_text(f"{lines[0]}\n{lines[1]}\n{json.dumps({'ended': True, 'step': 2})}\n")
    assert journals.read() == [Life(steps=[step(1, 0), step(2, 0)], ended=True)]


def test_the_cost_of_a_fault_is_read_from_the_steps():
    steps = [step(number, 0) for number in (1, 2, 3)]
    again = [Step(**{**vars(step(number, 0)), "at": 1010.0 + number}) for number in (2, 3, 4)]
    assert steps_lost(steps) == 0
    assert steps_lost([*steps, *again]) == 2
    assert longest_gap([*steps, *again]) == pytest.approx(1012.0 - 1003.5)
