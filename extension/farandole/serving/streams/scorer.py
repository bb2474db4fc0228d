"""Computes the outputs of records with the model of an endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole.models.model import ModelInfo
from farandole.models.records import check_records, has_classes, is_whole
from farandole.reading import parse_json, printable
from farandole.serving.batching import Answer, Batcher
from farandole.serving.requests import InvalidInputError, arrays_of
from farandole.serving.streams.log import Output, Record

LARGEST_RECORD = 2**20
"""The bytes of the largest record that is scored. It is also the default limit of NATS."""
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
        """Return the output of each record."""
        return list(await asyncio.gather(*map(self._score, records)))

    async def _score(self, record: Record) -> Output:
        info = self._batcher.runtime.info
        try:
            given = _parsed(record.body)
            inputs = arrays_of(_rows(given, info), info)
        except InvalidInputError as exc:
            return _refused(record, info, str(exc))
        try:
            answer = await self._batcher.compute(inputs, unlimited=True)
        except Exception as exc:  # noqa: BLE001 - the model is the user's, and its error belongs to this record
            return _refused(record, info, f"the model failed: {type(exc).__name__}: {exc}")
        others = {key: value for key, value in given.items() if key not in inputs}
        try:
            return self._scored(record, others, answer, info)
        except InvalidInputError as exc:
            return _refused(record, info, str(exc))

    def _scored(self, record: Record, others: Mapping[str, Any], answer: Answer, info: ModelInfo) -> Output:
        """Return the output of a record: what it has besides inputs, the outputs of the model, and the label."""
        rows = {name: array[0] if array.shape[:1] == (1,) else array for name, array in answer.outputs.items()}
        if infinite := [name for name, row in rows.items() if row.dtype.kind == "f" and not np.isfinite(row).all()]:
            raise InvalidInputError(f"the model returned values of {infinite[0]!r} that are not finite, such as NaN")
        wanted = self._labelled or (info.labels and has_classes(info))
        label = _label(rows[info.outputs[0].name], info) if wanted else ""
        own = {name: row.tolist() for name, row in rows.items()} | ({LABEL_KEY: label} if label else {})
        if both := own.keys() & others.keys():
            raise InvalidInputError(f"the record has {min(both)!r}, which is also an output of the model; rename it")
        body = json.dumps({**others, **own}, allow_nan=False).encode()
        return Output(record=record, body=body, label=label, model=f"{info.name}:{answer.version}")


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
    number = int(row.ravel()[0]) if is_whole(info.outputs[0]) else int(row.argmax())
    return info.labels[number] if 0 <= number < len(info.labels) else str(number)


def _refused(record: Record, info: ModelInfo, error: str) -> Output:
    return Output(record=record, body=record.body, model=str(info), error=printable(error)[:LONGEST_ERROR])
