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

    def __init__(self, version=1, shape=(-1, 2)):
        tensor = TensorInfo(name="x", datatype="FP32", shape=shape)
        self.info = SimpleNamespace(version=version, inputs=(tensor,), outputs=(tensor,))
        self.gate = threading.Event()
        self.gate.set()
        self.batches = []
        self.closed = False

    def compute(self, inputs):
        self.gate.wait(10)
        assert not self.closed
        self.batches.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"x": 2 * inputs["x"]}

    def close(self):
        self.closed = True


def rows(number, value=1.0, width=2):
    return {"x": np.full((number, width), value, np.float32)}


async def waiting(batcher, requests):
    """Send the first request, and the others while it is computed. Return the tasks."""
    runtime = batcher.runtime
    runtime.gate.clear()
    tasks = [asyncio.create_task(batcher.compute(requests[0]))]
    await _until(lambda: batcher._task is not None and not batcher._waiting)
    tasks += [asyncio.create_task(batcher.compute(one)) for one in requests[1:]]
    await _until(lambda: len(batcher._waiting) == len(requests) - 1)
    runtime.gate.set()
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


async def test_a_new_version_answers_what_comes_after_the_switch():
    first, second = Doubling(1), Doubling(2)
    batcher = Batcher(first)
    tasks = await waiting(batcher, [rows(1), rows(1)])
    await batcher.replace(second)
    later = await batcher.compute(rows(1))
    versions = [answer.version for answer in await asyncio.gather(*tasks)]
    assert (versions[0], later.version) == (1, 2)
    assert first.closed
    assert not second.closed


async def test_too_many_waiting_requests_are_refused():
    batcher = Batcher(Doubling())
    tasks = await waiting(batcher, [rows(1)] * (MOST_WAITING + 1))
    with pytest.raises(OverloadedError, match=f"{MOST_WAITING} requests are waiting"):
        await batcher.compute(rows(1))
    await asyncio.gather(*tasks)
