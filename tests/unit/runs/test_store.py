"""The run store on disk keeps readable files, survives crashes and full disks, and finds runs."""

import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from farandole.exceptions import DeadlineError, RankError, RunNotFoundError, UsageError
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.folder import driver_is_gone, this_process
from farandole.runs.lifecycle.tombstones import marked_as_deleted
from farandole.runs.notes import change_notes
from farandole.runs.positions import POSITIONS, cut_back, sizes_of
from farandole.runs.store import RunStore, load_run, load_runs
from farandole.runs.writer import RunFiles, strict_json, write_atomically


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def create(store, **options):
    known = {"code": "fd.report(loss=1)", "backend": "torch", "size": 2, "workers": ["c-w0", "c-w1"]}
    return store.create(**{**known, **options})


def report(run, rank, step, loss):
    run.add_records(rank, report_to_json(Report(rank=rank, time=1.0, step=step, values={"loss": loss})))


def test_run_is_readable_without_our_code(store):
    run = create(store, name="first", options={"lr": float("nan")}, versions={"torch": "2.13.0"}, cluster="c")
    report(run, 0, 1, 0.5)
    report(run, 1, 1, float("inf"))
    run.add_log(1, "hello\n")
    run.add_records(0, {"kind": "result", "rank": 0, "time": 1.0, "value": [1, 2]})
    run.finish(Status.FINISHED)
    info = json.loads((run.folder / "run.json").read_text())
    assert (info["id"], info["name"], info["status"], info["size"]) == (run.id, "first", "finished", 2)
    assert (info["options"], info["results"]) == ({"lr": "NaN"}, {"0": [1, 2]})
    assert info["driver"]["pid"] == os.getpid()
    assert (run.folder / "code.py").read_text() == "fd.report(loss=1)"
    line = json.loads((run.folder / "metrics/rank-1.jsonl").read_text())
    assert line == {"kind": "report", "rank": 1, "time": 1.0, "step": 1, "values": {"loss": "Infinity"}}
    assert (run.folder / "logs/rank-1.log").read_text() == "hello\n"


def test_load_returns_the_run(store):
    run = create(store, name="x")
    for step in range(5):
        report(run, 0, step, float(step))
    run.add_log(0, "a\nb\n")
    run.notice("careful")
    run.finish(Status.INTERRUPTED, "stopped by the user")
    again = store.load(run.id)
    assert again.dataframe().equals(run.dataframe())
    assert (again.status, again.error, again.notices) == (run.status, run.error, run.notices)
    assert again.code == run.code
    assert again.ranks()[0].log.lines() == ["a", "b"]
    assert load_run(run.id, store.folder)["loss"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_reports_reach_the_disk_within_a_second(store):
    run = create(store)
    report(run, 0, 1, 0.5)
    path = run.folder / "metrics/rank-0.jsonl"
    deadline = time.monotonic() + 5
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.read_text().endswith("\n")
    run.finish(Status.FINISHED)


def test_torn_last_line_is_skipped(store):
    run = create(store)
    report(run, 0, 1, 0.5)
    run.finish(Status.FINISHED)
    with (run.folder / "metrics/rank-0.jsonl").open("a") as file:
        file.write('{"kind": "report", "ra')
    assert len(store.load_run(run.id)) == 1


KILLED = """
import os, signal, sys, time
from pathlib import Path
from farandole.runs.store import RunStore
from farandole.protocol import Report, report_to_json
run = RunStore(Path(sys.argv[1])).create(code="", backend="torch", size=1, workers=["w"])
began, step = time.monotonic(), 0
while time.monotonic() - began < 2:
    step += 1
    run.add_records(0, report_to_json(Report(rank=0, time=time.monotonic() - began, step=step, values={"x": 1.0})))
    time.sleep(0.002)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_of_the_driver_loses_at_most_a_second_and_the_run_is_lost(store):
    earlier = create(store)
    report(earlier, 0, 1, 0.5)
    earlier.finish(Status.FINISHED)
    done = subprocess.run([sys.executable, "-c", KILLED, str(store.folder)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    newest, oldest = store.list()
    assert (newest.status, oldest.status) == (Status.LOST, Status.FINISHED)
    frame = store.load_run(newest.id)
    assert frame["time"].iloc[-1] > 1.0
    assert frame["step"].tolist() == list(range(1, len(frame) + 1))
    assert len(store.load_run(earlier.id)) == 1


def test_only_a_dead_driver_counts_as_gone():
    me = this_process()
    assert not driver_is_gone(me)
    assert driver_is_gone({**me, "started": me["started"] - 60})
    assert driver_is_gone({**me, "pid": 2**22 + 1})
    assert not driver_is_gone({**me, "host": "elsewhere", "pid": 1})


def test_list_is_newest_first_and_skips_bad_folders(store):
    runs = [create(store) for _ in range(3)]
    for run in runs:
        run.finish(Status.FINISHED)
    (store.folder / "empty").mkdir()
    (store.folder / "half").mkdir()
    (store.folder / "half" / "run.json").write_text('{"id": "half"')
    (store.folder / "odd").mkdir()
    (store.folder / "odd" / "run.json").write_text("[]")
    with pytest.warns(UserWarning, match="left out") as warned:
        listed = store.list()
    assert len(warned) == 3
    assert [info.id for info in listed] == [run.id for run in reversed(runs)]


def test_list_of_a_missing_store_is_empty(store):
    assert store.list() == []
    assert store.load_runs().empty


def test_the_hyperparameters_of_the_line_and_of_the_cell_are_stored(store):
    run = create(store, config={"lr": 0.01})
    assert store.find(run.id).config == {"lr": 0.01}
    run.add_records(0, {"kind": "config", "rank": 0, "time": 1.0, "values": {"lr": 0.01, "batch": 64}})
    run.finish(Status.FINISHED)
    info = store.find(run.id)
    assert (info.config, info.overrides) == ({"lr": 0.01, "batch": 64}, {"lr": 0.01})


def test_another_driver_keeps_the_hyperparameters(store):
    first = create(store, config={"lr": 0.01})
    about = json.loads(first.info.to_json())
    record = {"kind": "config", "rank": 0, "time": 1.0, "values": {"lr": 0.01, "batch": 64}}
    first.add_records(0, record, position=("kernel", 1))
    first.let_go()
    resumed = store.resume(about, "code")
    resumed.add_records(0, {**record, "values": {"batch": 32}}, position=("kernel", 1))
    resumed.add_records(0, {**record, "values": {"width": 8}}, position=("kernel", 2))
    resumed.finish(Status.FINISHED)
    info = store.find(first.id)
    assert (info.config, info.overrides) == ({"lr": 0.01, "batch": 64, "width": 8}, {"lr": 0.01})


def test_a_row_for_each_run(store):
    one, two = create(store, name="one", config={"lr": 0.1}, cluster="c"), create(store, config={"batch": 64})
    for rank in range(2):
        report(one, rank, 1, 0.5 + rank)
        report(two, rank, 1, math.nan)
    for run in (one, two):
        run.finish(Status.FINISHED)
    change_notes(one.folder, {"tags": ["best", "to show"], "notes": "The first that converges"})
    rows = load_runs(store.folder).set_index("id")
    basics = ["name", "status", "started", "seconds", "size", "backend", "cluster", "ended", "tags", "notes"]
    assert list(rows.columns[:10]) == basics
    assert sorted(rows.columns[10:]) == ["config.batch", "config.lr", "highest.loss", "lowest.loss", "series.loss"]
    assert rows.loc[one.id][["name", "status", "size", "config.lr", "series.loss"]].tolist() == [
        "one", "finished", 2, 0.1, 1.0
    ]  # fmt: skip
    assert rows.loc[one.id, ["lowest.loss", "highest.loss"]].tolist() == [0.5, 1.5]
    assert rows.loc[one.id, "seconds"] == one.ended - one.started
    assert rows.loc[one.id, "ended"] == one.ended
    assert rows.loc[one.id, ["tags", "notes"]].tolist() == [["best", "to show"], "The first that converges"]
    assert rows.loc[two.id, ["tags", "notes"]].tolist() == [[], ""]
    assert math.isnan(rows.loc[two.id, "config.lr"])
    assert math.isnan(rows.loc[two.id, "series.loss"])


@pytest.mark.parametrize("content", ["", "[]", '{"series": [{"name": "loss"}]}', '{"series": 5}', None])
def test_without_a_readable_view_the_reports_are_read(store, content):
    run = create(store)
    report(run, 0, 1, 0.25)
    run.finish(Status.FINISHED)
    view = run.folder / "view.json"
    view.unlink() if content is None else view.write_text(content)
    assert store.load_runs()["series.loss"].tolist() == [0.25]


@pytest.mark.parametrize("stored", ["view", "view without extremes", "no view"])
def test_the_best_values_of_a_long_run_are_those_of_single_reports(store, stored):
    run = create(store)
    for step in range(10_000):
        report(run, 0, step, -7.0 if step == 5_003 else 9.0 if step == 5_004 else 1.0)
    run.finish(Status.FINISHED)
    view = run.folder / "view.json"
    content = json.loads(view.read_text())
    assert min(content["series"][0]["mean"]) > 0.5
    if stored == "view without extremes":
        series = [{key: one[key] for key in one.keys() - {"lowest", "highest"}} for one in content["series"]]
        view.write_text(json.dumps({**content, "series": series}))
    if stored == "no view":
        view.unlink()
    [row] = store.load_runs().to_dict("records")
    assert [row[f"{part}.loss"] for part in ("series", "lowest", "highest")] == [1.0, -7.0, 9.0]


def test_without_pandas_the_error_names_the_remedy(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = create(store)
    report(run, 0, 1, 0.25)
    run.finish(Status.FINISHED)
    for frame in (store.load_runs, run.dataframe):
        with pytest.raises(UsageError, match="need pandas, .*run `%pip install pandas`"):
            frame()


def test_names_of_any_text_are_in_a_data_frame(store):
    run = create(store)
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"\ud800": 0.25})))
    run.finish(Status.FINISHED)
    assert run.dataframe()["\ud800"].tolist() == [0.25]
    assert store.load_runs()["series.?"].tolist() == [0.25]


def test_with_a_view_the_reports_are_not_read(store):
    run = create(store)
    report(run, 0, 1, 0.25)
    run.finish(Status.FINISHED)
    (run.folder / "metrics" / "rank-0.jsonl").write_text("")
    assert store.load_runs()["series.loss"].tolist() == [0.25]


def test_a_row_of_a_lost_run_has_no_duration_and_an_unreadable_run_has_no_row(store):
    lost = create(store)
    lost.let_go()
    record = json.loads((lost.folder / "run.json").read_text())
    (lost.folder / "run.json").write_text(json.dumps({**record, "driver": {**record["driver"], "started": 1.0}}))
    (store.folder / "bad").mkdir()
    with pytest.warns(UserWarning, match="left out"):
        rows = store.load_runs()
    assert rows["status"].tolist() == ["lost"]
    assert rows["ended"].isna().all()
    assert rows["seconds"].isna().all()


def test_find_by_id_prefix_and_name(store):
    first, second = create(store, name="a"), create(store, name="a")
    for run in (first, second):
        run.finish(Status.FINISHED)
    assert store.find(first.id).id == first.id
    assert store.find("a").id == second.id
    assert store.find(first.id[:-1] if first.id[:-1] != second.id[:-1] else first.id).id == first.id


@pytest.mark.parametrize("key", ["nothing", "", "../runs"])
def test_find_lists_the_existing_runs(store, key):
    run = create(store)
    run.finish(Status.FINISHED)
    with pytest.raises(RunNotFoundError, match=run.id):
        store.find(key)


def test_find_suggests_similar_ids_and_names(store):
    run = create(store, name="digits")
    run.finish(Status.FINISHED)
    with pytest.raises(RunNotFoundError, match=r"lists all\). Did you mean 'digits'\?"):
        store.find("digtis")
    with pytest.raises(RunNotFoundError, match=rf"Did you mean '{run.id}'\?"):
        store.find(run.id[1:])


def test_find_refuses_an_ambiguous_prefix(store):
    for _ in range(2):
        create(store).finish(Status.FINISHED)
    with pytest.raises(RunNotFoundError, match="2 runs begin with '2'"):
        store.find("2")


def test_find_in_an_empty_store_names_the_folder(store):
    with pytest.raises(RunNotFoundError, match="FARANDOLE_RUNS"):
        store.find("x")


def test_an_unwritable_folder_is_reported_once_and_nothing_is_lost(store, tmp_path):
    (tmp_path / "runs").write_text("a file in place of the folder")
    run = create(store)
    for step in range(10):
        report(run, 0, step, 1.0)
    run.flush()
    assert len(run.notices) == 1
    assert "cannot be written: Not a directory" in run.notices[0]
    assert len(run.dataframe()) == 10
    (tmp_path / "runs").unlink()
    run.finish(Status.FINISHED)
    assert "written again" in run.notices[1]
    assert len(store.load_run(run.id)) == 10
    assert store.load(run.id).notices == run.notices
    assert store.load(run.id).info.warnings == run.notices[:1]


@pytest.mark.parametrize("deleted", [True, False])
def test_a_folder_that_is_gone_is_not_created_again(store, tmp_path, deleted):
    run = create(store)
    report(run, 0, 0, 1.0)
    run.flush()
    if deleted:
        with marked_as_deleted(run.folder):
            run.folder.rename(tmp_path / "elsewhere")
    else:
        run.folder.rename(tmp_path / "elsewhere")
    report(run, 0, 1, 1.0)
    run.finish(Status.FINISHED)
    expected = (
        "has been deleted, so nothing more" if deleted else "cannot be written: The folder of the run was deleted"
    )
    assert [expected in notice for notice in run.notices] == [True]
    assert not run.folder.exists()
    assert len(run.dataframe()) == 2
    if not deleted:
        (tmp_path / "elsewhere").rename(run.folder)
        give_up = time.monotonic() + 20
        while "written again" not in run.notices[-1]:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        assert len(store.load_run(run.id)) == 2


def test_a_folder_that_works_again_after_the_end_is_still_written(tmp_path):
    blocker = tmp_path / "r"
    blocker.write_text("")
    notices = []
    files = RunFiles(blocker, retry_seconds=0.05)
    files.start(lambda text, **_: notices.append(text))
    files.append({"metrics/rank-0.jsonl": "{}\n"})
    files.close()
    blocker.unlink()
    deadline = time.monotonic() + 5
    while len(notices) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (blocker / "metrics/rank-0.jsonl").read_text() == "{}\n"


def test_after_a_full_disk_writing_continues_in_the_middle_of_a_line(tmp_path):
    """A file size limit makes a write fail with EFBIG in the middle of a line.

    After the limit is lifted, the file is complete.
    """
    script = """
import resource, signal, sys
from pathlib import Path
from farandole.runs.writer import RunFiles
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
notices = []
files = RunFiles(Path(sys.argv[1]))
files.append({"metrics/rank-0.jsonl": "".join(f"line {n}\\n" for n in range(50))})
files.start(lambda text, *, warning: notices.append(text))
assert len(notices) == 1 and "File too large" in notices[0], notices
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
files.append({"metrics/rank-0.jsonl": "last\\n"})
files.close()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "r")], check=True, timeout=60)
    lines = (tmp_path / "r/metrics/rank-0.jsonl").read_text().splitlines()
    assert lines == [*(f"line {n}" for n in range(50)), "last"]


def test_a_file_is_created_once_for_all_earlier_messages(tmp_path):
    made = []

    def text(number):
        made.append(number)
        return f"{number}\n"

    files = RunFiles(tmp_path)
    for number in range(1000):
        files.replace("run.json", functools.partial(text, number))
    files.flush()
    assert made == [999]
    assert (tmp_path / "run.json").read_text() == "999\n"


def test_run_json_is_flushed_to_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    (tmp_path / "run.json").write_text("old\n")
    flushed = []

    def fsync(descriptor):
        flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / "run.json").read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    files = RunFiles(tmp_path)
    files.replace("run.json", "new\n")
    files.replace("code.py", "pass\n")
    files.flush()
    assert flushed == [(".run.json.tmp", "old\n")]
    assert (tmp_path / "run.json").read_text() == "new\n"


def test_a_run_that_is_being_created_is_not_reported_as_one_that_cannot_be_read(store, monkeypatch):
    listed = []

    def write(path, *rest, **options):
        # A folder without run.json would give a warning here, which is an error in tests.
        listed.append(len(store.list()))
        write_atomically(path, *rest, **options)

    monkeypatch.setattr("farandole.runs.writer.write_atomically", write)
    create(store).finish(Status.FINISHED)
    assert listed[0] == 0
    assert set(listed[1:]) == {1}


def test_the_results_of_many_ranks_are_all_in_the_file(store):
    run = create(store, size=600, workers=["w"] * 600)
    for rank in range(600):
        run.add_records(rank, {"kind": "result", "value": rank})
    run.finish(Status.FINISHED)
    assert store.load(run.id).results == {rank: rank for rank in range(600)}


def test_strict_json_has_no_nan():
    text = strict_json({"a": [float("nan"), float("-inf"), 1.5], "b": {1: object}})
    assert json.loads(text, parse_constant=pytest.fail)["a"] == ["NaN", "-Infinity", 1.5]


def test_the_git_commit_is_recorded(store, tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-qm", "one")
    assert create(store, cwd=tmp_path).info.git["dirty"] is False
    (tmp_path / "f").write_text("2")
    state = create(store, cwd=tmp_path).info.git
    assert state["dirty"] is True
    assert len(state["commit"]) == 40


def say(run, rank, step):
    """Make a rank report a step and print a line. These are the next two messages in the rank's journal."""
    record = report_to_json(Report(rank=rank, time=float(step), step=step, values={"x": float(step)}))
    run.add_records(rank, record, position=(f"kernel-{rank}", 2 * step + 1))
    run.add_log(rank, f"line {step}\n", position=(f"kernel-{rank}", 2 * step + 2))


def tear(run):
    """Write incomplete lines, as a driver does if it is killed while writing a message."""
    with (run.folder / "metrics/rank-0.jsonl").open("a") as file:
        file.write('{"kind": "rep')
    with (run.folder / "logs/rank-0.log").open("a") as file:
        file.write("line 3\nli")


def lose_positions(run):
    (run.folder / POSITIONS).unlink()


def lose_bytes(run):
    """Shorten a file, as a power failure may, so that it is smaller than the size that the driver has recorded."""
    path = run.folder / "metrics/rank-0.jsonl"
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("faults", [(), (tear,), (tear, lose_positions), (lose_bytes,)])
def test_a_replayed_run_continues_without_duplicates(store, faults):
    run = create(store, name="again")
    for step in range(3):
        say(run, 0, step)
    run.notice("a driver's notice")
    run.let_go()
    for fault in faults:
        fault(run)
    again = store.resume(json.loads(run.info.to_json()), run.code)
    assert (again.id, again.name, again.status, again.code) == (run.id, "again", Status.RUNNING, run.code)
    for step in range(5):
        say(again, 0, step)
    again.finish(Status.FINISHED)
    for known in (again, store.load(run.id)):
        assert known.dataframe()["step"].tolist() == list(range(5))
        assert known.notices == ("a driver's notice",)
    lines = (run.folder / "metrics/rank-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(5))
    assert (run.folder / "logs/rank-0.log").read_text() == "".join(f"line {step}\n" for step in range(5))
    assert store.find(run.id).status is Status.FINISHED


def test_ranks_of_an_elastic_run_share_files_and_each_message_is_written_once(store):
    """Ranks are renumbered, so a file contains messages from several kernels, in another order than in the journals."""
    run = create(store)
    messages = [("a", 1, 0), ("b", 1, 1), ("a", 2, 1), ("b", 2, 0), ("a", 3, 1)]

    def add_messages(run, messages):
        for kernel, number, rank in messages:
            record = report_to_json(Report(rank=rank, time=float(number), step=number, values={"x": 1.0}))
            run.add_records(rank, record, position=(kernel, number))
            if number == 1:
                run.add_records(rank, {"kind": "notice", "text": f"{kernel} is ready"}, position=(kernel, number))

    add_messages(run, messages[:3])
    run.assign_ranks(["w1", "w2"])
    run.let_go()
    again = store.resume(json.loads(run.info.to_json()), run.code)
    add_messages(again, sorted(messages, reverse=True))
    again.finish(Status.FINISHED)
    frame = store.load_run(run.id)
    assert sorted(zip(frame["rank"], frame["step"], strict=True)) == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    assert again.notices == ("a is ready", "b is ready")
    assert again.info.workers == ("w1", "w2")


def test_a_position_is_written_with_all_of_its_message(store):
    """Whenever the files are flushed, positions.json counts only complete messages."""
    run = create(store)
    for step in range(20):
        say(run, 0, step)
        run.flush()
        found = json.loads((run.folder / POSITIONS).read_text())
        assert found["kernels"] == {"kernel-0": 2 * step + 2}
        assert found["sizes"] == sizes_of(run.folder)
    run.finish(Status.FINISHED)


def test_positions_that_do_not_fit_the_files_are_removed(store):
    run = create(store)
    for step in range(3):
        say(run, 0, step)
    run.let_go()
    lose_bytes(run)
    assert cut_back(run.folder) == {}
    assert not (run.folder / POSITIONS).exists()


def test_a_temporarily_unreadable_folder_loses_no_file(store, monkeypatch):
    """If positions.json lacked the size of a file, the next driver would truncate that file to zero bytes."""
    run = create(store)
    say(run, 0, 0)
    run.let_go()
    monkeypatch.setattr("farandole.runs.writer.sizes_of", Mock(side_effect=OSError("stale file handle")))
    again = store.resume(json.loads(run.info.to_json()), run.code)
    monkeypatch.undo()
    again.finish(Status.FINISHED)
    assert (run.folder / "metrics/rank-0.jsonl").exists()
    assert json.loads((run.folder / POSITIONS).read_text())["sizes"] == sizes_of(run.folder)


def test_output_that_no_journal_holds_survives_the_next_driver(store):
    """A worker does not number output beyond the limit of its journal, so a second driver does not receive it again."""
    run = create(store)
    say(run, 0, 0)
    run.flush()
    run.add_log(0, "beyond the limit\n")
    run.flush()
    again = store.resume(json.loads(run.info.to_json()), run.code)
    say(again, 0, 0)
    again.finish(Status.FINISHED)
    assert (run.folder / "logs/rank-0.log").read_text() == "line 0\nbeyond the limit\n"
    run.let_go()


def test_the_progress_of_known_messages_is_still_shown(store):
    run = create(store)
    progress = {"kind": "progress", "name": "epoch", "done": 1, "total": 2, "time": 1.0}
    run.add_records(0, progress, position=("k", 1))
    run.let_go()
    again = store.resume(json.loads(run.info.to_json()), run.code)
    again.add_records(0, progress, position=("k", 1))
    assert again.ranks()[0].progress == {"epoch": progress}


def test_a_run_replayed_into_another_store_is_written_completely(store, tmp_path):
    run, other = create(store), RunStore(tmp_path / "other")
    run.let_go()
    again = other.resume(json.loads(run.info.to_json()), run.code)
    report(again, 1, 0, 0.5)
    again.finish(Status.FINISHED)
    assert len(other.load_run(run.id)) == 1
    assert (other.folder / run.id / "code.py").read_text() == run.code


def test_a_run_led_by_another_driver_is_not_written(store, tmp_path):
    run, other = create(store), RunStore(tmp_path / "other")
    again = other.follow(json.loads(run.info.to_json()), run.code)
    report(again, 0, 0, 0.5)
    again.finish(Status.FINISHED)
    assert len(again.dataframe()) == 1
    assert not other.folder.exists()
    run.finish(Status.FINISHED)


@pytest.mark.parametrize(("status", "error"), [(Status.FAILED, RankError), (Status.INTERRUPTED, RankError)])
def test_waiting_for_a_run_raises_the_error_of_its_cell(store, status, error):
    run = create(store)
    with pytest.raises(DeadlineError, match="it continues"):
        run.wait(0.01)
    run.finish(status, "the cell failed on rank 1")
    for waited in (run, store.load(run.id)):
        with pytest.raises(error, match="failed on rank 1"):
            waited.wait(5)


def test_waiting_for_a_run_led_elsewhere_names_the_remedy(store):
    run = create(store)
    with pytest.raises(UsageError, match="%cluster attach"):
        store.load(run.id).wait()
    run.finish(Status.FINISHED)
    assert store.load(run.id).wait().status is Status.FINISHED
