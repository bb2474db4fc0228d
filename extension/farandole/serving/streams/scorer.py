"""Computes the outputs of records with the model of an endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from farandole.models.model import ModelInfo
from farandole.models.records import check_records, has_classes, is_whole
from farandole.reading import parse_json, printable
from farandole.serving.batching import Answer, Batcher
from farandole.serving.requests import InvalidInputError, arrays_of
from farandole.serving.runtimes import Arrays
from farandole.serving.streams.log import Output, Record

LARGEST_RECORD = 2**20
"""The bytes of the largest record that is scored. It is also the default limit of NATS."""
TURN_BYTES = 2**16
"""The bytes of JSON that are parsed or written in one turn of the event loop, which takes about 2 ms."""
LONGEST_ERROR = 500
LABEL_KEY = "label"
"""The key of the label in an output."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The value of an input in a record, as a batch of one row."""

    name: str
    datatype: str
    data: list[Any]

    @property
    def shape(self) -> list[int]:
        sizes: list[int] = []
        inner: Any = self.data
        while isinstance(inner, list):
            sizes.append(len(inner))
            inner = inner[0] if inner else None
        return sizes


@dataclass(kw_only=True)
class _Job:
    """A record on its way to its output, with the version of the model for which ``inputs`` were converted."""

    record: Record
    info: ModelInfo
    given: dict[str, Any] = field(default_factory=dict)
    inputs: Arrays = field(default_factory=dict)
    answer: Answer | None = None
    error: str = ""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Keep an error as that of the record. Records are what anyone has sent, and none may stop those after it."""
        try:
            yield
        except InvalidInputError as exc:
            self.error = str(exc)
        except Exception as exc:  # noqa: BLE001 - see above
            self.error = f"the record cannot be scored: {type(exc).__name__}: {exc}"


class _Turns:
    """Lets other tasks run, such as those that answer requests, whenever `TURN_BYTES` bytes were processed."""

    def __init__(self) -> None:
        self._processed = 0

    async def end(self, count: int) -> None:
        """Note that ``count`` bytes were processed."""
        self._processed += count
        if self._processed >= TURN_BYTES:
            self._processed = 0
            await asyncio.sleep(0)


class Scorer:
    """Scores records, each of which is one row of the model's inputs.

    ``batcher`` computes the rows of records that are scored together, and of requests, in one batch.
    """

    def __init__(self, batcher: Batcher, *, labelled: bool) -> None:
        """Check that the model accepts single rows, and has a label if the target needs one (``labelled``).

        Raises:
            ModelError: the model cannot score records.
        """
        self._batcher = batcher
        self._labelled = labelled
        self.check(batcher.runtime.info)

    def check(self, info: ModelInfo) -> None:
        """Raise ModelError if a version of the model cannot score records."""
        check_records(info, labelled=self._labelled)

    async def score(self, records: Sequence[Record]) -> list[Output]:
        """Return the output of each record. An error, whatever it is, belongs to its record."""
        turns = _Turns()
        jobs: list[_Job] = []
        for record in records:
            jobs.append(self._job(record))
            await turns.end(len(record.body))
        await asyncio.gather(*(self._compute(one) for one in jobs if not one.error))
        outputs: list[Output] = []
        for job in jobs:
            outputs.append(self._output(job))
            await turns.end(len(outputs[-1].body))
        return outputs

    def _job(self, record: Record) -> _Job:
        job = _Job(record=record, info=self._batcher.runtime.info)
        with job.errors():
            job.given = _parsed(record.body)
            job.inputs = arrays_of(_rows(job.given, job.info), job.info)
        return job

    async def _compute(self, job: _Job) -> None:
        if job.info is not (info := self._batcher.runtime.info):
            # The version was switched in the meantime. Between here and `compute`, no other code runs.
            job.info = info
            with job.errors():
                job.inputs = arrays_of(_rows(job.given, info), info)
        if job.error:
            return
        try:
            job.answer = await self._batcher.compute(job.inputs, unlimited=True)
        except Exception as exc:  # noqa: BLE001 - the model is the user's, and its error belongs to this record
            job.error = f"the model failed: {type(exc).__name__}: {exc}"

    def _output(self, job: _Job) -> Output:
        with job.errors():
            if job.answer:
                return self._scored(job, job.answer)
        error = printable(job.error)[:LONGEST_ERROR]
        return Output(record=job.record, body=job.record.body, model=str(job.info), error=error)

    def _scored(self, job: _Job, answer: Answer) -> Output:
        """Return the output of a record: what it has besides inputs, the outputs of the model, and the label."""
        info = job.info
        others = {key: value for key, value in job.given.items() if key not in job.inputs}
        rows = {name: array[0] if array.shape[:1] == (1,) else array for name, array in answer.outputs.items()}
        if infinite := [name for name, row in rows.items() if row.dtype.kind == "f" and not np.isfinite(row).all()]:
            raise InvalidInputError(f"the model returned values of {infinite[0]!r} that are not finite, such as NaN")
        wanted = self._labelled or (info.labels and has_classes(info))
        label = _label(rows[info.outputs[0].name], info) if wanted else ""
        own = {name: row.tolist() for name, row in rows.items()} | ({LABEL_KEY: label} if label else {})
        if both := own.keys() & others.keys():
            what = "the label that the model gives it" if min(both) == LABEL_KEY and label else "an output of the model"
            raise InvalidInputError(f"the record has {min(both)!r}, which is also {what}; rename it")
        return Output(
            record=job.record, body=_json({**others, **own}), label=label, model=f"{info.name}:{answer.version}"
        )


def _parsed(body: bytes) -> dict[str, Any]:
    if len(body) > LARGEST_RECORD:
        raise InvalidInputError(f"the record has {len(body)} bytes, and may have at most {LARGEST_RECORD}")
    try:
        return parse_json(body, "the record")
    except ValueError as exc:
        raise InvalidInputError(str(exc)) from exc


def _rows(given: Mapping[str, Any], info: ModelInfo) -> list[_Row]:
    """Return the inputs that a record has. Its other values are not for the model."""
    return [
        _Row(name=one.name, datatype=one.datatype, data=[given[one.name]]) for one in info.inputs if one.name in given
    ]


def _label(row: np.ndarray[Any, Any], info: ModelInfo) -> str:
    """Return the class of a record: the integer that is the first output, or the class with the largest number."""
    if not row.size:
        raise InvalidInputError(f"the model returned no values of {info.outputs[0].name!r}, and so no label")
    number = int(row.ravel()[0]) if is_whole(info.outputs[0]) else int(row.argmax())
    return info.labels[number] if 0 <= number < len(info.labels) else str(number)


def _json(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError as exc:
        # The outputs of the model are finite.
        raise InvalidInputError("the record has values that are not finite, such as NaN") from exc
