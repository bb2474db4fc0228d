"""Computes requests that wait at the same time together, with one version of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from farandole.models.model import TensorInfo
from farandole.serving.runtimes import Arrays, Runtime

MOST_ROWS = 256
"""Rows that are computed together, unless a single request has more."""
MOST_WAITING = 1024
"""Requests that may wait. Further ones are refused, because their clients would give up before their turn."""


class OverloadedError(Exception):
    """Raised when too many requests wait."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The outputs for a request, by name, and the version that computed them."""

    outputs: Arrays
    version: int


@dataclass(kw_only=True, eq=False)
class _Waiting:
    inputs: Arrays
    rows: int
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Computes requests one batch after the other, in a thread.

    While a batch is computed, requests wait. The next batch has those of them that fit together. Nothing waits for
    further requests, so a single client is answered at once.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    @property
    def runtime(self) -> Runtime:
        """The version that computes new batches."""
        return self._runtime

    async def compute(self, inputs: Arrays) -> Answer:
        """Return the answer to a request.

        Raises:
            OverloadedError: too many requests wait.
            Exception: what the model raised for the batch that this request was in.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise OverloadedError(
                f"{MOST_WAITING} requests are waiting; send fewer at the same time, or try again later"
            )
        own = _Waiting(inputs=inputs, rows=max((len(one) for one in inputs.values() if one.ndim), default=1))
        self._waiting.append(own)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await own.answer

    async def replace(self, runtime: Runtime) -> None:
        """Use another version for all batches from now on. Close the earlier one after its last batch."""
        earlier, self._runtime = self._runtime, runtime
        # The thread computes one batch after the other, so this runs after the last batch of the earlier version.
        await asyncio.get_running_loop().run_in_executor(self._thread, earlier.close)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._compute(self._runtime, self._next(self._runtime))
        finally:
            self._task = None

    def _next(self, runtime: Runtime) -> list[_Waiting]:
        """Remove the first request from the queue, with those after it that can be computed together with it."""
        first = self._waiting[0]
        batch, rows = [first], first.rows
        if _is_batched((*runtime.info.inputs, *runtime.info.outputs)):
            for other in self._waiting[1:]:
                if rows + other.rows > MOST_ROWS or not _fit(first.inputs, other.inputs):
                    break
                batch.append(other)
                rows += other.rows
        del self._waiting[: len(batch)]
        return [one for one in batch if not one.answer.done()]

    async def _compute(self, runtime: Runtime, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._thread, _together, runtime, batch)
        except Exception as exc:  # noqa: BLE001 - the request raises it
            if len(batch) > 1:
                # The error belongs to one of the requests, and not to the others.
                for one in batch:
                    await self._compute(runtime, [one])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(exc)
            return
        for one, own in zip(batch, outputs, strict=True):
            if not one.answer.done():
                one.answer.set_result(Answer(outputs=own, version=runtime.info.version))


def _together(runtime: Runtime, batch: Sequence[_Waiting]) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Return the outputs of each request in a batch."""
    if len(batch) == 1:
        return [runtime.compute(batch[0].inputs)]
    joined = {name: np.concatenate([one.inputs[name] for one in batch]) for name in batch[0].inputs}
    ends = np.cumsum([one.rows for one in batch])[:-1]
    parts = {name: np.split(output, ends) for name, output in runtime.compute(joined).items()}
    return [{name: parts[name][place] for name in parts} for place in range(len(batch))]


def _is_batched(tensors: Sequence[TensorInfo]) -> bool:
    return all(tensor.shape[:1] == (-1,) for tensor in tensors)


def _fit(first: Arrays, other: Arrays) -> bool:
    return all(first[name].shape[1:] == other[name].shape[1:] for name in first)
