"""An invalid file in one run's folder is reported, and all other runs stay visible."""

import json
import os
import time

import pytest
from farandole.exceptions import RunNotFoundError
from farandole.notebook.listing import RunList
from farandole.protocol import Status
from farandole.runs.checkpoints.found import checkpoints_of
from farandole.runs.positions import cut_back
from farandole.runs.store import RunStore
from farandole.runs.writer import RunFiles, strict_json, write_atomically

from tests.strange import BAD, FILES, GOOD, REPORT, limited_memory, loop, outside, pipe, replaced, write_run

pytestmark = pytest.mark.timeout(30)

WRONG = {
    "id": [],
    "name": {"a": 1},
    "status": "resting",
    "error": ["a"],
    "started": "yesterday",
    "ended": {},
    "size": "2",
    "workers": [1, None],
    "options": [],
    "driver": [1],
    "results": {"first": 1},
    "notices": "text",
    "warnings": "text",
    "sync": [1],
    "resumed_from": 5,
    "cluster": None,
    "notebook": 10**300,
}
SYNC = {"mode": "local", "waiting": 0.1, "bytes_per_step": 1, "staleness": 0}
HUGE = {
    "started": 10**300,
    "ended": -(10**300),
    "size": 10**9,
    "driver": {"host": os.uname().nodename, "pid": 10**30, "started": 1.0},
}


@pytest.fixture
def store(tmp_path):
    write_run(tmp_path / "runs")
    return RunStore(tmp_path / "runs")


def listed(store):
    with pytest.warns(UserWarning, match=f"run '{BAD}' cannot be read: "):
        return [info.id for info in store.list()]


@pytest.mark.parametrize("make", FILES)
def test_a_strange_run_json_hides_no_other_run_and_hangs_nothing(store, make):
    replaced(make, write_run(store.folder, BAD) / "run.json")
    with limited_memory():
        assert listed(store) == [GOOD]
        with pytest.raises(RunNotFoundError, match=f"run '{BAD}' cannot be read: .*run.json"):
            store.find(BAD)
        assert store.load(GOOD).dataframe()["loss"].tolist() == [0.5]


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_type_in_run_json_hides_no_other_run(store, key):
    write_run(store.folder, BAD, **{key: WRONG[key]})
    assert listed(store) == [GOOD]
    with pytest.raises(RunNotFoundError, match=f"cannot be read: '{key}' in run.json must be of type"):
        store.find(BAD[:-1])


@pytest.mark.parametrize("key", ["config", "overrides"])
@pytest.mark.parametrize(
    "value",
    [[1], {"lr": [1]}, {"lr": {"a": 1}}, {"1st": 1}, {"a b": 1}, {"lr": "x" * 1001}, {f"p{n}": n for n in range(201)}],
)
def test_hyperparameters_of_another_type_hide_no_other_run(store, key, value):
    write_run(store.folder, BAD, **{key: value})
    assert listed(store) == [GOOD]
    with pytest.raises(RunNotFoundError, match=f"'{key}' in run.json must be of type hyper-parameters, not"):
        store.find(BAD)


@pytest.mark.parametrize("value", [{"first": SYNC}, {"0": [1]}, {"0": {**SYNC, "waiting": "long"}}])
def test_figures_of_a_sync_mode_of_another_type_hide_no_other_run(store, value):
    write_run(store.folder, BAD, sync=value)
    assert listed(store) == [GOOD]
    with pytest.raises(RunNotFoundError, match=f"run '{BAD}' cannot be read: "):
        store.find(BAD)


@pytest.mark.parametrize("key", HUGE)
def test_a_huge_number_in_run_json_hides_no_other_run(store, key):
    write_run(store.folder, BAD, status="running", **{key: HUGE[key]})
    assert listed(store) == [GOOD]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_time_that_is_not_finite_hides_no_other_run(store, number):
    path = write_run(store.folder, BAD) / "run.json"
    path.write_text(path.read_text().replace("1767225600.0", number))
    assert listed(store) == [GOOD]


@pytest.mark.parametrize("missing", ["id", "status", "started"])
def test_a_missing_key_in_run_json_is_named(store, missing):
    path = write_run(store.folder, BAD) / "run.json"
    record = json.loads(path.read_text())
    del record[missing]
    path.write_text(json.dumps(record))
    with pytest.raises(RunNotFoundError, match=f"run.json has no '{missing}'"):
        store.find(BAD)


def test_a_run_cannot_take_the_id_of_another(store):
    write_run(store.folder, BAD, id=GOOD, started=1767225700.0)
    assert {info.id for info in store.list()} == {GOOD, BAD}
    assert store.find(GOOD).folder.name == GOOD


def test_links_in_the_store_that_lead_to_themselves_hide_no_run(store):
    loop(store.folder / "loop")
    assert [info.id for info in store.list()] == [GOOD]


def test_a_run_folder_that_was_moved_to_another_disk_is_read_through_its_link(store, tmp_path):
    moved = write_run(tmp_path / "disk", BAD)
    (store.folder / BAD).symlink_to(moved)
    assert store.load(BAD).dataframe()["loss"].tolist() == [0.5]


@pytest.mark.parametrize("name", ["metrics/rank-0.jsonl", "usage/rank-0.jsonl", "logs/rank-0.log", "code.py"])
@pytest.mark.parametrize("make", [pipe, loop, outside])
def test_a_pipe_or_a_link_among_the_files_of_a_run_costs_only_that_file(store, name, make):
    run = write_run(store.folder, BAD)
    (run / "metrics" / "rank-1.jsonl").write_text(json.dumps({**REPORT, "rank": 1}) + "\n")
    replaced(make, run / name)
    with pytest.warns(UserWarning, match=f"A file of run '{BAD}' cannot be read and is left out: '{name}' is "):
        loaded = store.load(BAD)
    assert 1 in loaded.dataframe()["rank"].tolist()
    assert "root:" not in loaded.code + "".join(loaded.ranks()[0].log.lines())


def test_a_run_whose_code_is_not_written_yet_is_read_without_a_warning(store):
    (store.folder / GOOD / "code.py").unlink()
    assert store.load(GOOD).code == ""


def test_a_link_in_place_of_the_folder_of_metrics_is_not_followed(store, tmp_path):
    run = write_run(store.folder, BAD)
    (run / "metrics").rename(tmp_path / "elsewhere")
    (run / "metrics").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="'metrics' is a symbolic link"):
        assert store.load(BAD).dataframe().empty


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"kind": "report"}',
        '{"kind": "report", "rank": 0, "time": "now", "values": {}}',
        '{"kind": "report", "rank": 0, "time": 1.0, "step": "one", "values": {"loss": 1.0}}',
        '{"kind": "report", "rank": 0, "time": 1.0, "step": 1' + "0" * 300 + ', "values": {"loss": 1.0}}',
        '{"kind": "report", "rank": 0, "time": 1.0, "step": 1, "values": {"loss": 1' + "0" * 400 + "}}",
        '{"kind": "report", "rank": 1' + "0" * 300 + ', "time": 1.0, "step": 1, "values": {"loss": 1.0}}',
        '{"kind": "result"}',
        '{"kind": "usage", "cpu_percent": []}',
    ],
)
def test_a_strange_line_costs_no_other_report(store, line):
    for part in ("metrics", "usage"):
        (write_run(store.folder, BAD) / part / "rank-0.jsonl").write_text(f"{line}\n{json.dumps(REPORT)}\n")
    frame = store.load(BAD).dataframe()
    assert frame["loss"].tolist()[0] == 0.5
    assert frame["step"].tolist()[0] == 1


def test_the_largest_step_of_a_report_spoils_no_data_frame(store):
    line = json.dumps({**REPORT, "step": 2**63 - 1})
    (write_run(store.folder, BAD) / "metrics" / "rank-0.jsonl").write_text(line + "\n")
    assert store.load(BAD).dataframe()["step"].tolist() == [2**63 - 1024]


def test_a_line_of_gigabytes_is_not_read_into_memory(store):
    path = write_run(store.folder, BAD) / "metrics" / "rank-0.jsonl"
    os.truncate(path, 3_000_000_000)
    with limited_memory(), pytest.warns(UserWarning, match="has a line of more than 1 MiB"):
        assert store.load(BAD).dataframe()["loss"].tolist() == [0.5]


@pytest.mark.parametrize("name", ["rank-².jsonl", "rank-" + "9" * 200 + ".jsonl", "rank-.jsonl", "rank--1.jsonl"])
def test_a_file_of_no_rank_is_left_out(store, name):
    (write_run(store.folder, BAD) / "metrics" / name).write_text(json.dumps(REPORT) + "\n")
    assert len(store.load(BAD).dataframe()) == 1


@pytest.mark.parametrize("make", FILES)
def test_a_strange_manifest_hides_no_other_checkpoint(store, make):
    run = write_run(store.folder, BAD)
    for step in (1, 2):
        (run / "checkpoints" / f"step-{step}").mkdir(parents=True)
    manifest = {"step": 1, "time": 1.0, "bytes": 5}
    (run / "checkpoints" / "step-1" / "manifest.json").write_text(json.dumps(manifest))
    replaced(make, run / "checkpoints" / "step-2" / "manifest.json")
    assert [checkpoint.step for checkpoint in checkpoints_of(run)] == [1]


@pytest.mark.parametrize("changes", [{"time": float("nan")}, {"step": 1e999}, {"bytes": "5"}, {"time": 1e300}])
def test_a_manifest_of_wrong_types_is_no_checkpoint(store, changes):
    folder = write_run(store.folder, BAD) / "checkpoints" / "step-1"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"step": 1, "time": 1.0, "bytes": 5, **changes}))
    assert checkpoints_of(folder.parent.parent) == ()


@pytest.mark.parametrize("make", FILES)
def test_strange_positions_do_not_stop_a_driver_that_takes_over(store, make):
    run = write_run(store.folder, BAD)
    replaced(make, run / "positions.json")
    assert cut_back(run) == {}


@pytest.mark.parametrize("sizes", [{"../x": 1}, {"a\0": 1}, {"metrics/rank-0.jsonl": 1e999}, [], {"/etc/passwd": 1}])
def test_positions_of_wrong_types_do_not_stop_a_driver_that_takes_over(store, sizes):
    run = write_run(store.folder, BAD)
    (run / "positions.json").write_text(json.dumps({"kernels": {}, "sizes": sizes}))
    assert cut_back(run) == {}


def test_positions_do_not_cut_a_file_outside_of_the_run(store, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("a long text")
    run = write_run(store.folder, BAD)
    path = run / "metrics" / "rank-0.jsonl"
    path.unlink()
    path.symlink_to(precious)
    (run / "positions.json").write_text(json.dumps({"kernels": {"k": 1}, "sizes": {}}))
    cut_back(run)
    assert precious.read_text() == "a long text"


@pytest.mark.parametrize("make", [pipe, outside])
def test_a_run_json_that_cannot_be_read_does_not_stop_a_driver_that_takes_over(store, make):
    run = store.create(code="x", backend="none", size=1, workers=["w"])
    run.finish(Status.FINISHED)
    about = json.loads(run.info.to_json())
    replaced(make, run.folder / "run.json")
    again = store.resume(about, "x")
    again.finish(Status.FINISHED)
    assert store.find(run.id).status is Status.FINISHED


@pytest.mark.parametrize("write", [RunFiles.replace, lambda files, name, text: files.append({name: text})])
def test_nothing_is_written_through_a_link_in_place_of_a_folder(tmp_path, write):
    told, run = [], tmp_path / "run"
    run.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (run / "metrics").symlink_to(tmp_path / "elsewhere")
    files = RunFiles(run)
    write(files, "metrics/rank-0.jsonl", "{}\n")
    files.start(lambda text, **_: told.append(text))
    assert "'metrics' is a symbolic link" in told[0]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (run / "metrics").unlink()
    files.close()
    assert (run / "metrics" / "rank-0.jsonl").read_text() == "{}\n"


def test_a_pipe_among_the_files_does_not_stop_the_driver_that_writes(tmp_path):
    told = []
    files = RunFiles(tmp_path)
    (tmp_path / "metrics").mkdir()
    pipe(tmp_path / "metrics" / "rank-0.jsonl")
    files.append({"metrics/rank-0.jsonl": "{}\n"})
    begun = time.monotonic()
    files.start(lambda text, **_: told.append(text))
    assert time.monotonic() - begun < 5
    assert "cannot be written" in told[0]
    (tmp_path / "metrics" / "rank-0.jsonl").unlink()
    files.close()
    assert (tmp_path / "metrics" / "rank-0.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("make", [pipe, outside])
def test_a_temporary_file_is_not_written_through_a_link_or_a_pipe(tmp_path, make):
    make(tmp_path / ".run.json.tmp")
    write_atomically(tmp_path / "run.json", b"{}")
    assert (tmp_path / "run.json").read_bytes() == b"{}"


def test_names_with_control_characters_do_not_reach_the_terminal(store):
    write_run(store.folder, BAD, name="a\x1b[31mb\nc")
    write_run(store.folder, "20260101-\x1b[2J")
    rows = RunList(store.list())
    assert "\x1b" not in repr(rows) + rows._repr_html_()
    assert "a?[31mb?c" in repr(rows)


def test_a_half_of_a_surrogate_pair_is_no_json_of_ours(store):
    write_run(store.folder, BAD, name="\ud800")
    text = strict_json([info.name for info in store.list()])
    assert json.loads(text.encode()) == ["?", GOOD]
