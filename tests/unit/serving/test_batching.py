"""Requests that wait together are computed together, by one version."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from farandole.models.model import TensorInfo
from farandole.serving.batching import MOST_ROWS, MOST_WAITING, Batcher, OverloadedError


class Doubling:
    """Returns its input times two, and records its batches. It waits for ``gate`` before each."""

    def __init__(self, version=1, shape=(-1, 2), name="x"):
        tensor = TensorInfo(name=name, datatype="FP32", shape=shape)
        self.name = name
        self.info = SimpleNamespace(version=version, inputs=(tensor,), outputs=(tensor,))
        self.gate = threading.Event()
        self.gate.set()
        self.batches = []
        self.closed = False

    def compute(self, inputs):
        self.gate.wait(10)
        assert not self.closed
        given = inputs[self.name]
        self.batches.append(len(given))
        if (given < 0).any():
            raise ValueError("negative")
        return {self.name: self.output(given)}

    def output(self, given):
        return 2 * given

    def close(self):
        self.closed = True


class Summing(Doubling):
    """Returns the sum over all rows, although its signature promises a row of output for each row of input."""

    def output(self, given):
        return given.sum(0)


class Largest(Doubling):
    """Returns a single number, although its signature promises a row of output for each row of input."""

    def output(self, given):
        return given.max()


def rows(number, value=1.0, width=2, name="x"):
    return {name: np.full((number, width), value, np.float32)}


async def waiting(batcher, requests):
    """Send the first request, and the others while it is computed. Return the tasks."""
    tasks = await held_back(batcher, requests)
    batcher.runtime.gate.set()
    return tasks


async def held_back(batcher, requests):
    """Send requests as `waiting` does, but let the first one wait for the gate of the version."""
    batcher.runtime.gate.clear()
    tasks = [asyncio.create_task(batcher.compute(requests[0]))]
    await _until(lambda: batcher._task is not None and not batcher._waiting)
    tasks += [asyncio.create_task(batcher.compute(one)) for one in requests[1:]]
    await _until(lambda: len(batcher._waiting) == len(requests) - 1)
    return tasks


async def _until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_requests_that_wait_are_computed_together():
    runtime = Doubling()
    tasks = await waiting(Batcher(runtime), [rows(1, float(value)) for value in range(1, 6)])
    answers = await asyncio.gather(*tasks)
    assert runtime.batches == [1, 4]
    assert [answer.outputs["x"].tolist() for answer in answers] == [[[2.0 * value] * 2] for value in range(1, 6)]
    assert {answer.version for answer in answers} == {1}


async def test_a_single_request_does_not_wait_for_others():
    answer = await asyncio.wait_for(Batcher(Doubling()).compute(rows(3)), 5)
    assert answer.outputs["x"].shape == (3, 2)


async def test_a_batch_has_a_largest_size():
    runtime = Doubling()
    await asyncio.gather(*await waiting(Batcher(runtime), [rows(1), rows(MOST_ROWS - 1), rows(2), rows(1)]))
    assert runtime.batches == [1, MOST_ROWS - 1, 3]


async def test_requests_of_other_shapes_are_computed_apart():
    runtime = Doubling(shape=(-1, -1))
    await asyncio.gather(*await waiting(Batcher(runtime), [rows(1), rows(1), rows(1, width=3), rows(1, width=3)]))
    assert runtime.batches == [1, 1, 2]


async def test_a_model_for_one_size_of_batch_computes_each_request_apart():
    runtime = Doubling(shape=(1, 2))
    await asyncio.gather(*await waiting(Batcher(runtime), [rows(1), rows(1), rows(1)]))
    assert runtime.batches == [1, 1, 1]


@pytest.mark.parametrize(
    ("model", "expected"),
    [(Summing, [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]), (Largest, [1.0, 2.0, 3.0, 4.0])],
)
async def test_outputs_without_a_row_for_each_row_of_input_are_computed_apart(model, expected):
    runtime = model()
    tasks = await waiting(Batcher(runtime), [rows(1, float(value)) for value in range(1, 5)])
    answers = await asyncio.gather(*tasks)
    assert [answer.outputs["x"].tolist() for answer in answers] == expected
    assert runtime.batches == [1, 3, 1, 1, 1]


async def test_an_error_belongs_to_the_request_that_caused_it():
    tasks = await waiting(Batcher(Doubling()), [rows(1), rows(1), rows(1, -1.0), rows(1)])
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, ValueError) for one in found] == [False, False, True, False]


async def test_a_request_that_was_cancelled_is_left_out():
    batcher = Batcher(Doubling())
    tasks = await waiting(batcher, [rows(1), rows(1), rows(1)])
    tasks[1].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    assert found[2].outputs["x"].shape == (1, 2)


async def replaced_while_waiting(first, second, before, after):
    """Replace ``first`` while it computes the first request and the others wait, then send the requests in ``after``.

    Return the answers and errors of all requests.
    """
    batcher = Batcher(first)
    tasks = await held_back(batcher, before)
    replacing = asyncio.create_task(batcher.replace(second))
    await _until(lambda: batcher.runtime is second)
    tasks += [asyncio.create_task(batcher.compute(one)) for one in after]
    await _until(lambda: len(batcher._waiting) == len(before) - 1 + len(after))
    assert not replacing.done()
    first.gate.set()
    found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    await asyncio.wait_for(replacing, 10)
    return found


@pytest.mark.parametrize(("shape", "name"), [((-1, 2), "x"), ((-1, 3), "x"), ((-1, 2), "y")])
async def test_the_version_at_a_requests_arrival_answers_it(shape, name):
    first, second = Doubling(1), Doubling(2, shape, name)
    new = rows(1, width=shape[1], name=name)
    found = await replaced_while_waiting(first, second, [rows(1), rows(1), rows(2)], [new, new])
    assert [answer.version for answer in found] == [1, 1, 1, 2, 2]
    assert [len(*answer.outputs.values()) for answer in found] == [1, 1, 2, 1, 1]
    assert (first.batches, second.batches) == ([1, 3], [2])
    assert first.closed
    assert not second.closed


async def test_a_version_is_closed_after_the_requests_of_a_failed_batch_are_computed_apart():
    first = Doubling(1)
    found = await replaced_while_waiting(first, Doubling(2), [rows(1), rows(1), rows(1, -1.0)], [])
    assert [type(one).__name__ for one in found] == ["Answer", "Answer", "ValueError"]
    assert first.batches == [1, 2, 1, 1]
    assert first.closed


async def test_a_version_that_computes_nothing_is_closed_at_once():
    first = Doubling(1)
    await asyncio.wait_for(Batcher(first).replace(Doubling(2)), 10)
    assert first.closed


async def test_a_request_that_cannot_be_put_into_a_batch_does_not_stop_others():
    runtime = Doubling()
    batcher = Batcher(runtime)
    tasks = await waiting(batcher, [rows(1)])
    await asyncio.gather(*tasks)
    runtime.info.inputs = None
    for _ in range(2):
        with pytest.raises(TypeError):
            await asyncio.wait_for(batcher.compute(rows(1)), 10)


async def test_too_many_waiting_requests_are_refused():
    batcher = Batcher(Doubling())
    tasks = await waiting(batcher, [rows(1)] * (MOST_WAITING + 1))
    with pytest.raises(OverloadedError, match=f"{MOST_WAITING} requests are waiting"):
        await batcher.compute(rows(1))
    await asyncio.gather(*tasks)
