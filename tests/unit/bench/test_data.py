"""Tests for the bench of data: its made-up rows, what all engines compute from them, and what the bench compares."""

from __future__ import annotations

import io
import os
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from bench.data import training
from bench.data.engines import Outcome, check, run_script, two_cores
from bench.data.inputs import clicks_maker, images_maker, write_inputs
from bench.data.job import CATEGORIES, CROPPED, FLOWS, INFERENCE_BATCH, INPUTS, Job, output_of
from bench.data.measure import table, totals
from bench.data.rows import FEATURE_TYPES, PREDICTION_TYPES, decode, features, predict, with_price

FEW = {"clicks": 1000, "images": 24}


def clicks():
    return pd.DataFrame(
        {
            "id": [3, 4, 5, 6],
            "item": [7, 7, 8, 7],
            "category": ["toys", "books", "toys", "food"],
            "hour": [0, 6, 12, 1],
            "price": [np.e, 1.0, np.e**2, None],
            "label": [1, 0, 1, 0],
        }
    )


def test_the_rows_come_from_a_seed(tmp_path):
    write_inputs(tmp_path / "a", FEW)
    write_inputs(tmp_path / "b", FEW)
    for flow, count in FEW.items():
        one, other = (pq.read_table(tmp_path / name / flow) for name in "ab")
        assert one.equals(other)
        assert sorted(one["id"].to_pylist()) == list(range(count))
        assert len(list((tmp_path / "a" / flow).iterdir())) == 8


def test_some_clicks_have_no_price_and_both_classes_are_frequent():
    rows = clicks_maker()(0, 10_000)
    assert 50 < rows["price"].null_count < 200
    assert set(rows["category"].to_pylist()) == set(CATEGORIES)
    assert 0.35 < pc.mean(rows["label"]).as_py() < 0.65


def test_features_are_those_of_rows_with_a_price():
    found = features(with_price(clicks()), 1.0, 2.0, pd.Series({7: 2, 8: 1}))
    assert found.dtypes.astype(str).to_dict() == FEATURE_TYPES
    assert found["id"].tolist() == [3, 4, 5]
    assert found["price"].tolist() == pytest.approx([0, -0.5, 0.5])
    assert found["popularity"].tolist() == pytest.approx(np.log([3, 3, 2]))
    assert found["hour_sin"].tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    assert found["category"].tolist() == [7, 0, 7]


def test_the_middle_of_an_image_is_decoded():
    picture = np.zeros((96, 96, 3), np.uint8)
    picture[:, 48:] = [250, 0, 0]
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    found = decode(pd.DataFrame({"id": [1], "label": [2], "image": [file.getvalue()]}, index=[9]))
    pixels = training.tensors({"pixels": found["pixels"]}, ["pixels"])["pixels"]
    assert pixels.shape == (1, 3, CROPPED, CROPPED)
    assert pixels[0, :, 0, [0, -1]].tolist() == [[0, 250], [0, 0], [0, 0]]


def prepared(flow):
    """Return prepared rows of a flow as a data frame."""
    if flow == "images":
        return decode(images_maker()(0, 24).to_pandas())
    rows = with_price(clicks_maker()(0, 500).to_pandas())
    return features(rows, 3.0, 1.0, rows["item"].value_counts())


@pytest.mark.parametrize("flow", FLOWS)
def test_a_trained_model_is_loaded_and_predicts_each_row(tmp_path, flow, monkeypatch):
    monkeypatch.setattr(training, "EPOCHS", 30)
    rows = prepared(flow)
    names = [*INPUTS[flow], "label"]
    batch = training.tensors({name: rows[name].to_numpy() for name in names}, names)
    model = training.new_model(flow)
    training.fit(model, training.optimizer_of(model), lambda: [batch])
    training.save(model, str(tmp_path / "model.pt"))
    monkeypatch.setitem(INFERENCE_BATCH, flow, 10)
    found = predict(rows, flow, str(tmp_path / "model.pt"))
    assert found.dtypes.astype(str).to_dict() == PREDICTION_TYPES[flow]
    assert found["id"].tolist() == rows["id"].tolist()
    assert np.mean(found["predicted"].to_numpy() == rows["label"].to_numpy()) > 0.6
    if flow == "images":
        assert {len(one) for one in found["features"]} == {training.FEATURES}


def test_processes_train_with_equal_shares_and_save_one_model(tmp_path):
    prepared("clicks").to_parquet(tmp_path / "rows.parquet")
    meeting = (tmp_path / "meeting").as_uri()
    context = torch.multiprocessing.get_context("spawn")
    arguments = ("clicks", str(tmp_path / "rows.parquet"), str(tmp_path / "model.pt"))
    processes = [
        context.Process(
            target=training.train, args=arguments, kwargs={"init_method": meeting, "rank": rank, "world_size": 2}
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert training.load("clicks", arguments[2]) is not None


def write_predictions(work, ids, predicted):
    output = output_of(work, "clicks")
    output.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "predicted": predicted}), output / "part.parquet")


def test_an_engine_that_leaves_out_rows_or_does_not_learn_is_not_compared(tmp_path):
    write_inputs(tmp_path / "source", FEW)
    rows = pq.read_table(tmp_path / "source" / "clicks")
    rows = rows.filter(pc.is_valid(rows["price"]))
    ids, labels = (rows[name].to_numpy() for name in ("id", "label"))
    check_clicks = ("ours", "clicks", tmp_path / "source", tmp_path, 0.65)
    write_predictions(tmp_path, ids[::-1], labels[::-1])
    check(*check_clicks)
    write_predictions(tmp_path, ids[1:], labels[1:])
    with pytest.raises(AssertionError, match=rf"ours has {len(ids) - 1} predictions for the {len(ids)} rows of clicks"):
        check(*check_clicks)
    write_predictions(tmp_path, ids, 1 - labels)
    with pytest.raises(AssertionError, match=r"ours predicts 0\.0% of clicks correctly"):
        check(*check_clicks)


def outcome(start, rest, **others):
    return Outcome(seconds={"start": start, "prepare clicks": rest, **others}, figures={})


def test_the_start_of_the_engine_counts_and_that_of_java_does_not():
    ours = Outcome(seconds={"start": 4.0, "prepare clicks": 6.0}, figures={"copied_bytes": 1000, "prepared_bytes": 5e7})
    rounds = [{"farandole": ours, "dask": outcome(2, 8), "spark": outcome(5, 15, java=5), "ray": outcome(10, 10)}]
    spark, ray, dask, java, copied = totals(rounds)
    assert (spark.name, spark.value, spark.limit) == ("data_total_ratio_spark", 0.5, "<= 0.6")
    assert spark.note == "10 : 20, s; 0.40 with the start of Java"
    assert (ray.name, ray.value, ray.limit) == ("data_total_ratio_ray", 0.5, "<= 1")
    assert (dask.value, dask.limit, java.value) == (1, "", 5)
    assert (copied.value, copied.note.split(";")[1].split()[:2]) == (1000, ["50", "MB"])
    lines = [line.split() for line in table(rounds).splitlines()]
    assert lines[0] == ["seconds", "farandole", "dask", "spark", "ray"]
    assert lines[1] == ["java", "5.0"]
    assert lines[2] == ["start", "4.0", "2.0", "5.0", "10.0"]
    assert lines[-1] == ["total", "10.0", "10.0", "25.0", "20.0"]


def test_phases_follow_one_another_and_begin_with_the_process(tmp_path):
    job = Job(tmp_path, tmp_path, begun=time.monotonic() - 10)
    for phase in ("start", "java", "start"):
        job.lap(phase)
    assert list(job.seconds) == ["start", "java"]
    assert job.seconds["start"] >= 10
    assert 10 <= sum(job.seconds.values()) < 11


def test_the_output_of_a_script_that_fails_is_printed(tmp_path, capfd):
    with pytest.raises(Exception, match="non-zero exit status"):
        run_script("no_such_engine", tmp_path, tmp_path / "work")
    assert "No module named bench.data.no_such_engine" in capfd.readouterr().err


def test_processes_get_two_cores():
    before = os.sched_getaffinity(0)
    with two_cores():
        assert len(os.sched_getaffinity(0)) == min(2, len(before))
    assert os.sched_getaffinity(0) == before
