"""Tests for the consumer: what it does after errors and conflicts, and what it says of itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from farandole.exceptions import StreamError
from farandole.serving.streams import consumer as module
from farandole.serving.streams.consumer import Consumer
from farandole.serving.streams.figures import StreamFigures
from farandole.serving.streams.log import Batch, ConflictError, Log, Output, Record, UnavailableError
from farandole.streams.address import parse_source, parse_target

from tests.unit.serving.streams.test_scorer import model, scorer, three

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path


class Memory:
    """What is in a broker: records, outputs, and errors that the next calls raise."""

    def __init__(self, count: int) -> None:
        self.records = [Record(position=str(place), body=b'{"x": [1, 2]}') for place in range(count)]
        self.outputs: list[Output] = []
        self.errors: list[Exception] = []
        self.opened = 0
        self.lose_answer = False
        """Whether the answer to the next append is lost."""


class MemoryLog(Log):
    """A log of records and outputs in memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def open(self) -> None:
        self._memory.opened += 1

    async def close(self) -> None: ...

    async def position(self) -> str:
        return self._memory.outputs[-1].record.position if self._memory.outputs else ""

    async def seek(self) -> str:
        self._at = len(self._memory.outputs)
        return await self.position()

    async def read(self) -> Batch:
        await asyncio.sleep(0.001)
        found = self._memory.records[self._at : self._at + 2]
        self._at += len(found)
        return Batch(records=found, waiting=len(self._memory.records) - self._at)

    async def append(self, outputs: Sequence[Output]) -> None:
        if self._memory.errors:
            raise self._memory.errors.pop(0)
        self._memory.outputs += outputs
        if self._memory.lose_answer:
            self._memory.lose_answer = False
            raise UnavailableError("the answer was lost")


@pytest.fixture
def figures() -> StreamFigures:
    return StreamFigures(parse_source("calls"), parse_target("decisions"))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(module, "STANDBY_SECONDS", 0.05)


@asynccontextmanager
async def running(memory: Memory, figures: StreamFigures, folder: Path) -> AsyncIterator[list[int]]:
    used = list[int]()
    scores, _ = scorer(model(folder), three)
    consumer = Consumer(lambda: MemoryLog(memory), scores, figures, lambda: used.append(1))
    task = asyncio.create_task(consumer.run())
    try:
        yield used
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(memory: Memory) -> None:
    async with asyncio.timeout(10):
        while len(memory.outputs) < len(memory.records):
            await asyncio.sleep(0.01)


async def test_each_record_has_one_output(figures: StreamFigures, tmp_path: Path) -> None:
    memory = Memory(5)
    async with running(memory, figures, tmp_path) as used:
        await until(memory)
    assert [one.record.position for one in memory.outputs] == ["0", "1", "2", "3", "4"]
    assert len(used) == 3
    status = figures.status()
    assert (status["source"], status["target"], status["lag"]) == ("calls", "decisions", 0)
    assert (status["records_per_second"], status["dead_letters"], status["problem"]) == (5.0, 0, "")


@pytest.mark.parametrize("error", [UnavailableError("the broker is away"), StreamError("the stream was emptied")])
async def test_after_an_error_it_connects_again(figures: StreamFigures, tmp_path: Path, error: Exception) -> None:
    memory = Memory(4)
    memory.errors = [error]
    async with running(memory, figures, tmp_path):
        await until(memory)
    assert memory.opened == 2
    assert len(memory.outputs) == 4
    assert figures.problem == ""


async def test_it_says_what_is_wrong_while_it_is(figures: StreamFigures, tmp_path: Path) -> None:
    memory = Memory(4)
    memory.errors = [UnavailableError("the broker is away")] * 1000
    async with running(memory, figures, tmp_path), asyncio.timeout(10):
        while not figures.problem:
            await asyncio.sleep(0.01)
        assert (figures.problem, figures.lag) == ("the broker is away", None)


async def test_after_a_conflict_it_waits_while_the_other_one_scores(figures: StreamFigures, tmp_path: Path) -> None:
    memory = Memory(0)
    memory.errors = [ConflictError()]
    async with running(memory, figures, tmp_path) as used:
        for number in range(20):
            # The other endpoint scores each record a little later than it comes.
            record = Record(position=str(number), body=b'{"x": [1, 2]}')
            memory.records.append(record)
            await asyncio.sleep(0.02)
            memory.outputs.append(Output(record=record, body=b""))
            await asyncio.sleep(0.01)
        assert "another endpoint scores these records" in figures.problem
    assert used == []
    assert len(memory.outputs) == 20


async def test_a_problem_ends_when_the_outputs_turn_out_to_be_there(figures: StreamFigures, tmp_path: Path) -> None:
    memory = Memory(2)
    memory.lose_answer = True
    async with running(memory, figures, tmp_path), asyncio.timeout(10):
        while len(memory.outputs) < 2 or figures.problem or memory.opened < 2:
            await asyncio.sleep(0.01)
    assert len(memory.outputs) == 2


async def test_after_a_conflict_it_takes_over_when_the_other_one_is_gone(
    figures: StreamFigures, tmp_path: Path
) -> None:
    memory = Memory(4)
    memory.errors = [ConflictError()]
    async with running(memory, figures, tmp_path):
        await until(memory)
    assert memory.opened == 1
    assert [one.record.position for one in memory.outputs] == ["0", "1", "2", "3"]


def test_the_rate_is_that_of_the_last_minute(tmp_path: Path) -> None:
    now = [100.0]
    figures = StreamFigures(parse_source("calls"), parse_target("decisions"), clock=lambda: now[0])
    outputs: Any = [Output(record=Record(position="1", body=b""), body=b"", error=error) for error in ("", "", "bad")]
    figures.add(outputs, 7)
    now[0] = 101.0
    assert figures.status()["records_per_second"] == 2.0
    now[0] = 220.0
    figures.add(outputs, None)
    assert figures.status()["records_per_second"] == 2 / 60
    assert (figures.status()["dead_letters"], figures.status()["lag"]) == (2, None)
