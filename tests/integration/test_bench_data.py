"""Tests the data bench with small sizes, on the engines that need no environment of their own."""

from __future__ import annotations

import pytest

from bench.data.engines import run_script, two_cores
from bench.data.inference import measure as inference
from bench.data.inputs import write_inputs
from bench.data.job import FLOWS, PHASES
from bench.data.measure import compare

FEW = {"clicks": 20_000, "images": 400}
PHASES_OF_BOTH = ["start", *(f"{phase} {flow}" for flow in FLOWS for phase in PHASES)]


@pytest.mark.release
def test_farandole_and_plain_dask_do_the_same_job(tmp_path):
    write_inputs(tmp_path / "source", FEW)
    with two_cores():
        [found] = compare(
            tmp_path / "source", tmp_path, 1, engines=("farandole", "dask"), learned={"clicks": 0.5, "images": 0.0}
        )
    assert {name: list(one.seconds) for name, one in found.items()} == dict.fromkeys(found, PHASES_OF_BOTH)
    figures = found["farandole"].figures
    assert figures["copied_bytes"] < figures["prepared_bytes"]


@pytest.mark.release
def test_map_batches_and_the_plain_loop_compute_the_same_images(tmp_path):
    record = inference(tmp_path, 2, images=2000)
    assert len(record.runs) == 2
    assert all(ratio > 0 for ratio in record.runs)


@pytest.mark.release
def test_the_start_of_the_engine_is_measured_on_its_own(tmp_path):
    seconds = run_script("engine_start", tmp_path, tmp_path / "work").seconds
    assert list(seconds) == ["ranks", "engine"]
