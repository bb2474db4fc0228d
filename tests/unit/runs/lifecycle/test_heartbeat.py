"""Tests for the sign of life of a driver, by which other hosts see whether a run is in progress or lost."""

import json
import os
import time

import pytest
from farandole.protocol import Status
from farandole.runs.folder import this_process
from farandole.runs.lifecycle.heartbeat import HEARTBEAT, SIGNS, SILENT_SECONDS, Heartbeat, is_silent
from farandole.runs.store import RunStore

from tests.strange import GOOD, write_run

ELSEWHERE = {"host": "another-container", "pid": 1, "started": 1.0}


def age(folder, seconds):
    """Make all signs of life of a driver older."""
    then = time.time() - seconds
    for name in SIGNS:
        if (folder / name).exists():
            os.utime(folder / name, (then, then))


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "runs", status="running", ended=None, driver=ELSEWHERE)


def status(folder):
    return RunStore(folder.parent).find(GOOD).status


def test_a_run_of_another_host_is_lost_only_after_a_long_silence(folder):
    assert status(folder) is Status.RUNNING
    age(folder, SILENT_SECONDS - 60)
    assert status(folder) is Status.RUNNING
    age(folder, SILENT_SECONDS + 60)
    assert status(folder) is Status.LOST
    assert RunStore(folder.parent).find(GOOD).error == "the driver ended before the run did"


def test_a_silent_training_of_another_host_is_in_progress(folder):
    age(folder, SILENT_SECONDS + 60)
    Heartbeat(folder).beat()
    assert status(folder) is Status.RUNNING


@pytest.mark.parametrize("name", ["positions.json", "view.json"])
def test_a_driver_of_an_earlier_version_lives_while_it_writes(folder, name):
    age(folder, SILENT_SECONDS + 60)
    (folder / name).touch()
    assert status(folder) is Status.RUNNING


def test_a_driver_on_this_host_lives_as_long_as_its_process(folder):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "driver": this_process()}))
    age(folder, SILENT_SECONDS + 60)
    assert status(folder) is Status.RUNNING
    (folder / "run.json").write_text(json.dumps({**record, "driver": {**this_process(), "started": 1.0}}))
    Heartbeat(folder).beat()
    assert status(folder) is Status.LOST


def test_the_driver_touches_its_file_during_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("farandole.runs.lifecycle.heartbeat.BEAT_SECONDS", 0.0)
    run = RunStore(tmp_path / "runs").create(code="", backend="torch", size=1, workers=["c-w0"])
    os.utime(run.folder / HEARTBEAT, (1, 1))
    give_up = time.monotonic() + 20
    while (run.folder / HEARTBEAT).stat().st_mtime == 1:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    run.finish(Status.FINISHED)


def test_a_heartbeat_is_rare_and_creates_no_folder(tmp_path):
    heartbeat = Heartbeat(tmp_path / "gone")
    heartbeat.beat()
    assert not (tmp_path / "gone").exists()
    (tmp_path / "gone").mkdir()
    heartbeat.beat()
    path = tmp_path / "gone" / HEARTBEAT
    os.utime(path, (1, 1))
    heartbeat.beat()
    assert path.stat().st_mtime == 1


def test_a_folder_that_cannot_be_read_is_not_silent(tmp_path):
    assert not is_silent(tmp_path / "away")
