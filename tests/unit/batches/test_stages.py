"""Tests of stages: what may be one, what they may return, and how their errors are described."""

import functools

import numpy as np
import pytest
from farandole.batches.stages import Chain, StageError, name_of
from farandole.exceptions import ModelError, RankError


def double(batch):
    return {"n": batch["n"] * 2}


def multiply(batch, by):
    return {"n": batch["n"] * by}


class Add:
    def __init__(self, number=1):
        self.number = number

    def __call__(self, batch):
        return {"n": batch["n"] + self.number}


def test_functions_classes_instances_and_partials_are_stages():
    chain = Chain([double, Add, Add(5), functools.partial(Add, 10), functools.partial(multiply, by=2)])
    assert chain({"n": np.array([1])}, 1)["n"].tolist() == [36]


@pytest.mark.parametrize(
    ("stage", "name"),
    [(double, "double"), (Add, "Add"), (Add(), "Add"), (functools.partial(Add, 2), "Add"), ("iris:3", "iris:3")],
)
def test_stages_have_names(stage, name):
    assert name_of(stage, 2) == f"stage 2 ({name})"


def test_a_stage_that_cannot_be_made_is_named():
    class Broken:
        def __init__(self, path):
            raise AssertionError

    with pytest.raises(
        RankError, match=r"stage 1 \(Broken\) could not be made on a rank: TypeError.*functools.partial"
    ):
        Chain([Broken])


def test_a_stage_that_exits_while_it_is_made_is_named():
    class Parsed:
        def __init__(self):
            raise SystemExit(2)

    with pytest.raises(RankError, match=r"stage 1 \(Parsed\) could not be made on a rank: SystemExit: 2"):
        Chain([Parsed])


def test_the_last_stage_has_a_name():
    assert Chain([Add, double]).last == "stage 2 (double)"


def test_a_model_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path))
    with pytest.raises(RankError, match=r"stage 1 \(iris:3\) could not be made on a rank: there is no model 'iris'"):
        Chain(["iris:3"])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"n": [1]}, r"stage 1 \(<lambda>\) returned 1 rows in the column 'n' for a batch of 2"),
        ({"n": [1, 2], "m": [1, 2, 3]}, "returned 3 rows in the column 'm' for a batch of 2"),
        (None, r"stage 1 \(<lambda>\) returned nothing, and must return a dict"),
    ],
)
def test_a_stage_returns_a_row_for_each_row(result, said):
    with pytest.raises(RankError, match=said):
        Chain([lambda batch: result])({"n": [1, 2]}, 2)


def test_an_error_has_the_traceback_of_the_users_code():
    def divide(batch):
        return {"n": 1 / batch["n"][0]}

    with pytest.raises(StageError) as failed:
        Chain([double, divide])({"n": np.array(["a"], dtype=object)}, 1)
    assert failed.value.stage == "stage 2 (divide)"
    assert failed.value.error.startswith("TypeError")
    assert "in divide" in failed.value.traceback
    assert "farandole/batches" not in failed.value.traceback


def test_a_model_that_takes_other_columns_ends_the_job():
    def refuse(batch):
        raise ModelError("other columns")

    with pytest.raises(RankError, match=r"stage 1 \(refuse\): other columns"):
        Chain([refuse])({"n": [1]}, 1)
