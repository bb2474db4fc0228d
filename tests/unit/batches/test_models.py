"""Tests of stored models as stages."""

import numpy as np
import pytest
import torch
from farandole.batches.models import ModelStage, inputs_of
from farandole.exceptions import ModelError
from farandole.models.model import ModelInfo, TensorInfo
from farandole.models.names import ModelName
from farandole.models.store import ModelStore

from tests.models import save_sum


def info(*shapes):
    inputs = tuple(TensorInfo(name=f"in{place}", datatype="FP32", shape=shape) for place, shape in enumerate(shapes))
    return ModelInfo(name=ModelName(model="iris"), version=1, folder="", created=1.0, inputs=inputs)


def test_a_model_replaces_the_columns_of_its_input(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path))
    save_sum(ModelStore())
    stage = ModelStage("small:1")
    batch = stage({"x": np.arange(8.0).reshape(2, 4), "path": ["a", "b"]})
    [output] = set(batch) - {"path"}
    assert batch["path"] == ["a", "b"]
    assert batch[output].flatten().tolist() == [6.0, 22.0]
    side_by_side = stage({name: np.array([1.0, 2.0]) for name in "abcd"})
    assert side_by_side[output].flatten().tolist() == [4.0, 8.0]


def test_columns_are_found_by_the_names_of_the_inputs():
    batch = {"in1": torch.zeros(2, 3), "in0": np.zeros((2, 1), dtype=np.int64), "other": np.zeros(2)}
    found = inputs_of(batch, info((-1, 1), (-1, 3)))
    assert {name: (columns, array.shape, array.dtype) for name, (columns, array) in found.items()} == {
        "in0": (["in0"], (2, 1), np.float32),
        "in1": (["in1"], (2, 3), np.float32),
    }


@pytest.mark.parametrize(
    ("batch", "shapes", "said"),
    [
        (
            {"path": ["a"], "x": np.zeros((2, 5))},
            [(-1, 4)],
            r"the columns path \(a list\), x \[2, 5\], and the example of iris:1 has in0: FP32 \[-1, 4\], where",
        ),
        ({"x": np.zeros((2, 4))}, [(-1, 4), (-1, 4)], r"has in0: FP32 \[-1, 4\], in1: FP32 \[-1, 4\], where"),
        ({"x": np.zeros(2)}, [(-1, 4)], r"the batch has the columns x \[2\], and"),
        (
            {"in0": np.zeros((2, 5))},
            [(-1, 4)],
            r"the column in0 of the batch has the shape \[2, 5\], and the example of iris:1 has in0: FP32 \[-1, 4\]",
        ),
    ],
)
def test_other_columns_are_refused(batch, shapes, said):
    with pytest.raises(ModelError, match=said):
        inputs_of(batch, info(*shapes))


def test_a_column_of_the_shape_of_the_only_input_is_taken():
    batch = {"id": np.arange(2), "x": np.zeros((2, 4)), "text": ["a", "b"]}
    assert inputs_of(batch, info((-1, 4)))["in0"][0] == ["x"]
