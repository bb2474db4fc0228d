"""Tests of the status of Dask that a driver publishes."""

import json
from contextlib import suppress
from dataclasses import asdict

import pytest
from farandole.driver.data.status import DaskStatus, DaskWorker
from hypothesis import given, settings
from hypothesis import strategies as st

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


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def changed(record):
    """Return a strategy for the record with some random values."""
    return st.dictionaries(st.sampled_from(sorted(record)), VALUES, max_size=3).map(lambda found: {**record, **found})


WORKERS = st.dictionaries(st.text(max_size=4), changed(asdict(WORKER)) | VALUES, max_size=2)


@given(st.tuples(changed(asdict(STATUS)), st.just({}) | st.fixed_dictionaries({"workers": WORKERS})))
@settings(max_examples=200, derandomize=True)
def test_any_status_is_read_or_refused(parts):
    with suppress(ValueError):
        found = DaskStatus.read({**parts[0], **parts[1]})
        assert all(count >= 0 for count in (found.tasks, found.done, found.failed))
        assert all(one.paused in {"memory", "training", None} for one in found.workers.values())
