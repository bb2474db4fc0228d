"""What an elastic run's files hold is not written again, whoever says it in whichever order."""

import pytest
from farandole.driver.elastic.takeover import missing
from farandole.driver.recovery.reattach import about
from farandole.driver.recovery.replay import Replay, trim
from farandole.protocol import Kind, Report, report_to_json
from farandole.runs.store import RunStore, read_lines


def report(step):
    return report_to_json(Report(rank=1, time=float(step), step=step, values={"loss": 0.5}))


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


@pytest.fixture
def begun(store):
    """What workers know of a run whose files hold two reports of rank 1, two lines and a notice."""
    run = store.create(code="x", backend="torch", size=2, workers=["c-w0", "c-w1"])
    known = about(run)["run"]
    for step in (1, 2):
        run.add_record(1, report(step))
    run.add_log(1, "again\nagain\n")
    run.notice("rank 0 was lost")
    run.assign_ranks(["c-w1", "c-w2"])
    run.let_go()
    return known


def test_only_what_is_new_is_told(store, begun):
    run = store.go_on(begun, "x")
    again = Replay(run)
    for step in (2, 3, 1):
        again.add_record(1, report(step))
    again.add_record(1, {"kind": Kind.NOTICE, "text": "rank 0 was lost"})
    again.add_log(1, "aga")
    again.add_log(1, "in\nagain\nagain\nand")
    again.end()
    again.add_record(1, report(4))
    again.add_log(1, " more\n")
    run.let_go()
    assert run.dataframe()["step"].tolist() == [1, 2, 3, 4]
    assert [one["step"] for one in read_lines(run.folder / "metrics/rank-1.jsonl")] == [1, 2, 3, 4]
    assert (run.folder / "logs/rank-1.log").read_text() == "again\nagain\nagain\nand more\n"
    assert run.notices == ("rank 0 was lost",)
    assert run.info.workers == ("c-w1", "c-w2")


def test_without_files_all_is_told(store, begun, tmp_path):
    run = RunStore(tmp_path / "elsewhere").go_on(begun, "x")
    again = Replay(run)
    for step in (1, 2):
        again.add_record(1, report(step))
    again.end()
    run.let_go()
    assert run.dataframe()["step"].tolist() == [1, 2]
    assert run.info.workers == ("c-w0", "c-w1")


def test_a_line_that_a_killed_driver_has_not_ended_is_told_again(store, begun):
    path = store.folder / begun["id"] / "metrics/rank-1.jsonl"
    path.write_text(path.read_text()[:-9])
    trim(path.parent.parent)
    run = store.go_on(begun, "x")
    again = Replay(run)
    for step in (1, 2):
        again.add_record(1, report(step))
    run.let_go()
    assert [one["step"] for one in read_lines(path)] == [1, 2]
    assert run.dataframe()["step"].tolist() == [1, 2]


def test_ranks_that_nobody_is_are_missing():
    assert missing([{"rank": 2, "size": 4}, {"rank": 0, "size": 4}]) == [1, 3]
    assert missing([]) == [0]
