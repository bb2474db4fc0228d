"""Tests for the scores of records."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from farandole.exceptions import ModelError
from farandole.models.model import ModelInfo, TensorInfo
from farandole.models.names import ModelName
from farandole.serving.batching import Batcher
from farandole.serving.runtimes import Runtime
from farandole.serving.streams.log import Output, Record
from farandole.serving.streams.scorer import LARGEST_RECORD, TURN_BYTES, Scorer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Array = np.ndarray[Any, Any]
SCORES = TensorInfo(name="output", datatype="FP32", shape=(-1, 3))


class Computed(Runtime):
    """Computes with a function, and remembers the numbers of rows."""

    def __init__(self, info: ModelInfo, function: Callable[[Array], Array]) -> None:
        self.info = info
        self.rows: list[int] = []
        self._function = function

    def _load(self) -> None: ...

    def close(self) -> None: ...

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.rows.append(len(inputs["x"]))
        return {self.info.outputs[0].name: self._function(inputs["x"])}


def model(folder: Path, output: TensorInfo = SCORES, **about: Any) -> ModelInfo:
    inputs = (TensorInfo(name="x", datatype="FP32", shape=(-1, 2)),)
    outputs = (output,)
    about = {"inputs": inputs, **about}
    return ModelInfo(name=ModelName(model="iris"), version=3, folder=folder, created=1.0, outputs=outputs, **about)


def scorer(info: ModelInfo, function: Callable[[Array], Array], *, labelled: bool = False) -> tuple[Scorer, Computed]:
    runtime = Computed(info, function)
    return Scorer(Batcher(runtime), labelled=labelled), runtime


def three(x: Array) -> Array:
    return np.stack([x[:, 0], x[:, 1], x[:, 0] * 0], axis=1)


def record(body: bytes | dict[str, Any]) -> Record:
    return Record(position="1", body=body if isinstance(body, bytes) else json.dumps(body).encode())


async def one(of: Scorer, body: bytes | dict[str, Any]) -> Output:
    [output] = await of.score([record(body)])
    return output


async def test_records_are_computed_together_and_keep_their_order(tmp_path: Path) -> None:
    scores, runtime = scorer(model(tmp_path), three)
    found = await scores.score([record({"x": [number, 1]}) for number in range(20)])
    assert [json.loads(output.body)["output"] for output in found] == [[number, 1, 0] for number in range(20)]
    assert sum(runtime.rows) == 20
    assert max(runtime.rows) > 1


async def test_an_output_has_the_other_values_of_its_record(tmp_path: Path) -> None:
    scores, _ = scorer(model(tmp_path), three)
    found = await one(scores, {"id": "k7", "x": [1, 2], "at": {"h": 3}})
    assert json.loads(found.body) == {"id": "k7", "at": {"h": 3}, "output": [1, 2, 0]}
    assert (found.model, found.error, found.label) == ("iris:3", "", "")


async def test_the_label_is_the_name_of_the_class_with_the_largest_score(tmp_path: Path) -> None:
    scores, _ = scorer(model(tmp_path, labels=("sales", "support", "spam")), three)
    found = await one(scores, {"x": [1, 2]})
    assert (found.label, json.loads(found.body)["label"]) == ("support", "support")


async def test_without_names_the_label_is_the_number_of_the_class(tmp_path: Path) -> None:
    scores, _ = scorer(model(tmp_path), three, labelled=True)
    assert (await one(scores, {"x": [5, 2]})).label == "0"


async def test_an_integer_is_a_label(tmp_path: Path) -> None:
    info = model(tmp_path, TensorInfo(name="class", datatype="INT64", shape=(-1,)), labels=("no", "yes"))
    scores, _ = scorer(info, lambda x: x[:, 0].astype("int64"), labelled=True)
    assert [(await one(scores, {"x": [number, 0]})).label for number in (0, 1, 2)] == ["no", "yes", "2"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"nope", "the record is not valid JSON"),
        (b"[1, 2]", "the record is not a JSON object"),
        (b"\xff\xfe", "the record is not valid JSON"),
        (b'{"x":' + 5000 * b"[", "nested too deeply"),
        ({}, "the input 'x' is missing; expected x: FP32"),
        ({"x": [1]}, r"has the shape \[1, 1\]; expected x: FP32 \[-1, 2\]"),
        ({"x": [1, "a"]}, "contain strings"),
        ({"x": 1}, r"has the shape \[1\]"),
        ({"x": [[1, 2], [3]]}, r"has the shape \[1, 2, 2\]"),
        (b'{"x": [NaN, 1]}', "not finite"),
        ({"x": [1, 2], "output": 3}, "the record has 'output', which is also an output"),
        (b'{"x": [1, 2], "note": NaN}', "the record has values that are not finite"),
        (b'{"x": [1, 2], "note": [{"a": 1e999}]}', "the record has values that are not finite"),
        (b'{"x": [1, 2], "note": ' + 5000 * b"9" + b"}", "the record is not valid JSON"),
        (b'{"x": [1, 2], "pad": "' + LARGEST_RECORD * b"a" + b'"}', "bytes, and may have at most"),
    ],
)
async def test_a_record_that_cannot_be_scored_stays_with_the_reason(
    tmp_path: Path, body: bytes | dict[str, Any], message: str
) -> None:
    scores, _ = scorer(model(tmp_path), three)
    good, bad = await scores.score([record({"x": [1, 2]}), record(body)])
    assert not good.error
    assert bad.body == bad.record.body
    with pytest.raises(ValueError, match=message):
        raise ValueError(bad.error)


async def test_an_error_of_the_model_belongs_to_one_record(tmp_path: Path) -> None:
    def fails(x: Array) -> Array:
        if (x[:, 0] == 7).any():
            raise RuntimeError("seven")
        return three(x)

    scores, _ = scorer(model(tmp_path), fails)
    found = await scores.score([record({"x": [number, 0]}) for number in range(10)])
    assert [output.error for output in found if output.error] == ["the model failed: RuntimeError: seven"]
    assert found[7].error


async def test_an_output_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    scores, _ = scorer(model(tmp_path), lambda x: np.full((len(x), 3), np.nan, "float32"))
    assert "not finite" in (await one(scores, {"x": [1, 2]})).error


@pytest.mark.parametrize(
    ("output", "dtype"),
    [
        (TensorInfo(name="output", datatype="FP32", shape=(-1, 3)), "float32"),
        (TensorInfo(name="class", datatype="INT64", shape=(-1, 1)), "int64"),
    ],
)
async def test_an_empty_output_gives_no_label(tmp_path: Path, output: TensorInfo, dtype: str) -> None:
    scores, _ = scorer(model(tmp_path, output), lambda x: np.zeros((len(x), 0), dtype), labelled=True)
    assert (
        f"the model returned no values of {output.name!r}, and so no label" in (await one(scores, {"x": [1, 2]})).error
    )


async def test_a_record_with_a_label_of_its_own_gets_no_second_one(tmp_path: Path) -> None:
    record = {"x": [1, 2], "label": "own"}
    scores, _ = scorer(model(tmp_path, labels=("sales", "support", "spam")), three)
    assert "has 'label', which is also the label that the model gives it" in (await one(scores, record)).error
    without, _ = scorer(model(tmp_path), three)
    assert json.loads((await one(without, record)).body)["label"] == "own"


async def test_an_unexpected_error_belongs_to_its_record(tmp_path: Path) -> None:
    scores, runtime = scorer(model(tmp_path), three)
    other = TensorInfo(name="other", datatype="FP32", shape=(-1, 3))
    runtime.compute = lambda inputs: {"unknown": three(inputs["x"])}  # type: ignore[method-assign,assignment]
    runtime.info = model(tmp_path, other, labels=("sales", "support", "spam"))
    assert (await one(scores, {"x": [1, 2]})).error == "the record cannot be scored: KeyError: 'other'"


async def test_other_tasks_run_while_large_records_are_parsed_and_written(tmp_path: Path) -> None:
    turns: list[str] = []

    def computed(x: Array) -> Array:
        turns.append("computed")
        return three(x)

    async def others() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    scores, _ = scorer(model(tmp_path), computed)
    large = record({"x": [1, 2], "pad": TURN_BYTES * "a"})
    task = asyncio.create_task(others())
    found = await scores.score(20 * [large])
    task.cancel()
    assert [output.error for output in found] == 20 * [""]
    assert turns.index("computed") >= 20
    assert turns[::-1].index("computed") >= 20


async def test_a_record_is_scored_by_the_version_that_is_in_use_when_it_is_computed(tmp_path: Path) -> None:
    first, second = Computed(model(tmp_path), three), Computed(replace(model(tmp_path), version=4), three)
    batcher = Batcher(first)
    task = asyncio.create_task(
        Scorer(batcher, labelled=False).score(2 * [record({"x": [1, 2], "pad": TURN_BYTES * "a"})])
    )
    await asyncio.sleep(0)
    await batcher.replace(second)
    assert [output.model for output in await task] == ["iris:4", "iris:4"]
    assert (first.rows, sum(second.rows)) == ([], 2)


async def test_a_record_does_not_fit_a_version_to_which_the_endpoint_was_switched(tmp_path: Path) -> None:
    inputs = (TensorInfo(name="x", datatype="FP32", shape=(-1, 3)),)
    batcher = Batcher(Computed(model(tmp_path), three))
    task = asyncio.create_task(Scorer(batcher, labelled=False).score([record({"x": [1, 2], "pad": TURN_BYTES * "a"})]))
    await asyncio.sleep(0)
    await batcher.replace(Computed(model(tmp_path, inputs=inputs), three))
    [output] = await task
    assert "has the shape [1, 2]; expected x: FP32 [-1, 3]" in output.error


def test_a_model_that_needs_several_rows_is_refused(tmp_path: Path) -> None:
    info = model(tmp_path, inputs=(TensorInfo(name="x", datatype="FP32", shape=(8, 2)),))
    with pytest.raises(ModelError, match="cannot score records, which are single rows"):
        scorer(info, three)


@pytest.mark.parametrize("shape", [(-1, 1), (-1, 2, 2), ()])
def test_a_model_without_classes_gives_no_label(tmp_path: Path, shape: tuple[int, ...]) -> None:
    info = model(tmp_path, TensorInfo(name="output", datatype="FP32", shape=shape))
    with pytest.raises(ModelError, match="gives no label"):
        scorer(info, three, labelled=True)
    scorer(info, three)
