"""Computes requests that wait at the same time together, with one version of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

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
    runtime: Runtime
    inputs: Arrays
    rows: int
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Computes requests one batch after the other, in a thread.

    While a batch is computed, requests wait. The next batch has those of them that fit together. Nothing waits for
    further requests, so a single client is answered at once. A request is computed by the version that was in use when
    it arrived, because other versions may have other inputs.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[_Waiting] = []
        self._batch: list[_Waiting] = []
        """The requests that are being computed."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    @property
    def runtime(self) -> Runtime:
        """The version that computes new requests."""
        return self._runtime

    async def compute(self, inputs: Arrays, *, unlimited: bool = False) -> Answer:
        """Return the answer of the version in use, which ``inputs`` must fit.

        With ``unlimited``, the inputs are accepted however many requests wait. Records of streams use this, because
        nobody gives up waiting for them.

        Raises:
            OverloadedError: too many requests wait.
            Exception: what the model raised for the batch that this request was in.
        """
        if len(self._waiting) >= MOST_WAITING and not unlimited:
            raise OverloadedError(
                f"{MOST_WAITING} requests are waiting; send fewer at the same time, or try again later"
            )
        rows = max((len(one) for one in inputs.values() if one.ndim), default=1)
        own = _Waiting(runtime=self._runtime, inputs=inputs, rows=rows)
        self._waiting.append(own)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await own.answer

    async def replace(self, runtime: Runtime) -> None:
        """Use another version for all further requests. Close the earlier one after its last answer."""
        earlier, self._runtime = self._runtime, runtime
        if unanswered := [one.answer for one in (*self._batch, *self._waiting)]:
            await asyncio.wait(unanswered)
        # A cancelled request counts as answered although the thread may still compute it, so the thread closes.
        await asyncio.get_running_loop().run_in_executor(self._thread, earlier.close)

    async def _work(self) -> None:
        try:
            while self._waiting:
                # An error must not leave the first request in the queue, where all others would wait behind it.
                first = self._waiting.pop(0)
                try:
                    self._batch = [first, *self._take_fitting(first)]
                    await self._compute(self._batch)
                except Exception as exc:  # noqa: BLE001 - the request raises it
                    _refuse(first, exc)
        finally:
            self._batch, self._task = [], None

    def _take_fitting(self, first: _Waiting) -> list[_Waiting]:
        """Remove those requests from the beginning of the queue that can be computed together with ``first``."""
        info = first.runtime.info
        count, rows = 0, first.rows
        if _is_batched((*info.inputs, *info.outputs)):
            for other in self._waiting:
                if rows + other.rows > MOST_ROWS or not _fit(first, other):
                    break
                count += 1
                rows += other.rows
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken

    async def _compute(self, batch: Sequence[_Waiting]) -> None:
        batch = [one for one in batch if not one.answer.done()]
        if not batch:
            return
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._thread, _together, batch)
        except Exception as exc:  # noqa: BLE001 - the request raises it
            if len(batch) > 1:
                # The error belongs to one of the requests, and not to the others.
                for one in batch:
                    await self._compute([one])
            else:
                _refuse(batch[0], exc)
            return
        for one, own in zip(batch, outputs, strict=True):
            if not one.answer.done():
                one.answer.set_result(Answer(outputs=own, version=one.runtime.info.version))


def _refuse(request: _Waiting, exc: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(exc)


def _together(batch: Sequence[_Waiting]) -> list[Arrays]:
    """Return the outputs of each request in a batch."""
    compute = batch[0].runtime.compute
    if len(batch) > 1:
        joined = {name: np.concatenate([one.inputs[name] for one in batch]) for name in batch[0].inputs}
        outputs = compute(joined)
        ends = np.cumsum([one.rows for one in batch])
        if all(output.shape[:1] == (ends[-1],) for output in outputs.values()):
            parts = {name: np.split(output, ends[:-1]) for name, output in outputs.items()}
            return [{name: parts[name][place] for name in parts} for place in range(len(batch))]
        # Not each row of the outputs belongs to a row of the inputs, so the outputs cannot be divided.
    return [compute(one.inputs) for one in batch]


def _is_batched(tensors: Sequence[TensorInfo]) -> bool:
    return all(tensor.shape[:1] == (-1,) for tensor in tensors)


def _fit(first: _Waiting, other: _Waiting) -> bool:
    return first.runtime is other.runtime and all(
        array.shape[1:] == other.inputs[name].shape[1:] for name, array in first.inputs.items()
    )
