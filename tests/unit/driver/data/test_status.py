"""Tests of the status of Dask that a driver publishes."""

import json
from dataclasses import asdict

import pytest
from farandole.driver.data.status import DaskStatus, DaskWorker

WORKER = DaskWorker(running=1, waiting=2, done=3, memory=4, memory_limit=5, spilled=6, paused="memory")
STATUS = DaskStatus(tasks=7, done=3, failed=1, workers={"w0": WORKER})


def test_a_status_is_read_as_it_was_written():
    assert DaskStatus.read(json.loads(json.dumps(asdict(STATUS)))) == STATUS


def test_unknown_keys_of_a_later_version_are_ignored():
    record = asdict(STATUS)
    record["workers"]["w0"]["more"] = record["more"] = 1
    assert DaskStatus.read(record) == STATUS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": -1}, "'tasks' in the status of Dask must be of type count"),
        ({"done": True}, "'done'"),
        ({"failed": 2**60}, "'failed'"),
        ({"workers": []}, "'workers'"),
        ({"workers": {"w0": 5}}, "'w0'"),
        ({"workers": {"w0": {}}}, "'running'"),
        ({"workers": {"w0": {**asdict(WORKER), "memory": 1.5}}}, "'memory'"),
        ({"workers": {"w0": {**asdict(WORKER), "paused": "so"}}}, "'paused'.* must be of type pause or null"),
        ({"workers": {"w0": {**asdict(WORKER), "paused": []}}}, "'paused'"),
    ],
)
def test_an_invalid_status_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DaskStatus.read({**asdict(STATUS), **changes})
