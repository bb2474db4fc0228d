"""Tests of what all logs promise, against a real NATS server and a real Redis."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import nats
import pytest
from farandole.exceptions import StreamError
from farandole.serving.streams.log import ConflictError, Log, Output, UnavailableError
from farandole.serving.streams.nats_log import NatsLog
from farandole.serving.streams.redis_log import RedisLog
from farandole.streams.address import StreamAddress, parse_source, parse_target
from farandole.streams.broker import Broker
from redis.asyncio import Redis

from tests.brokers import RunningBroker, run_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from farandole.serving.streams.log import Record


class Outside(Protocol):
    """A program of a user, which sends records and reads outputs."""

    async def send(self, body: bytes, **headers: str) -> None: ...

    async def outputs(self, stream: str) -> list[tuple[bytes, dict[str, str]]]: ...


class OutsideNats:
    def __init__(self, broker: RunningBroker) -> None:
        self._url = broker.url

    async def send(self, body: bytes, **headers: str) -> None:
        client = await nats.connect(self._url)
        await client.jetstream().publish("calls", body, headers=headers or None)
        await client.close()

    async def outputs(self, stream: str) -> list[tuple[bytes, dict[str, str]]]:
        client = await nats.connect(self._url)
        context = client.jetstream()
        state = (await context.stream_info("decisions")).state
        found = [await context.get_msg("decisions", one) for one in range(state.first_seq, state.last_seq + 1)]
        await client.close()
        lower = [({name.lower(): value for name, value in (one.headers or {}).items()}, one) for one in found]
        return [(one.data or b"", headers) for headers, one in lower if one.subject == stream]


class OutsideRedis:
    def __init__(self, broker: RunningBroker) -> None:
        self._url = broker.url

    async def send(self, body: bytes, **headers: str) -> None:
        async with Redis.from_url(self._url) as client:
            await client.xadd("calls", {"data": body, **headers})

    async def outputs(self, stream: str) -> list[tuple[bytes, dict[str, str]]]:
        async with Redis.from_url(self._url) as client:
            found: Any = await client.xrange(stream)
        return [
            (fields.pop(b"data"), {name.decode(): value.decode() for name, value in fields.items()})
            for _, fields in found
        ]


@pytest.fixture(params=["nats", "redis"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    with run_broker(tmp_path, request.param) as running:
        yield running


@pytest.fixture
def outside(broker: RunningBroker) -> Outside:
    return OutsideNats(broker) if broker.scheme == "nats" else OutsideRedis(broker)


def addresses(broker: RunningBroker, target: str = "decisions.{label}") -> tuple[StreamAddress, StreamAddress]:
    return parse_source(f"{broker.url}/calls"), parse_target(f"{broker.url}/{target}")


@asynccontextmanager
async def opened(broker: RunningBroker, target: str = "decisions.{label}") -> AsyncIterator[Log]:
    source, other = addresses(broker, target)
    log = (
        NatsLog(Broker(broker.url), source, other)
        if broker.scheme == "nats"
        else RedisLog(broker.url, "", source, other)
    )
    async with log, asyncio.timeout(60):
        yield log


async def read(log: Log, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += (await log.read()).records
    return found


def scored(records: Sequence[Record]) -> list[Output]:
    return [Output(record=one, body=b"scored " + one.body, label="late", model="iris:1") for one in records]


async def bodies(outside: Outside, stream: str = "decisions.late") -> list[bytes]:
    return [body for body, _ in await outside.outputs(stream)]


async def test_outputs_follow_the_order_of_the_records(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        for number in range(5):
            await outside.send(str(number).encode())
        await log.append(scored(await read(log, 5)))
    assert await bodies(outside) == [b"scored %d" % number for number in range(5)]


async def test_reading_waits_for_a_record(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        waiting = asyncio.create_task(log.read())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await outside.send(b"first")
        batch = await waiting
        assert ([one.body for one in batch.records], batch.waiting) == ([b"first"], 0)


async def test_a_batch_says_how_many_records_wait(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        await asyncio.gather(*(outside.send(b"more") for _ in range(300)))
        batch = await log.read()
        assert batch.waiting == 300 - len(batch.records)


async def test_another_consumer_continues_behind_the_last_output(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        for number in range(6):
            await outside.send(str(number).encode())
        records = await read(log, 6)
        # This consumer is killed before it has appended the others.
        await log.append(scored(records[:2]))
    async with opened(broker) as log:
        assert await log.seek() == records[1].position
        await log.append(scored(await read(log, 4)))
    assert await bodies(outside) == [b"scored %d" % number for number in range(6)]


async def test_outputs_of_a_second_consumer_are_refused(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as first, opened(broker) as second:
        await first.seek()
        await second.seek()
        await outside.send(b"one")
        mine, theirs = await read(first, 1), await read(second, 1)
        await first.append(scored(mine))
        with pytest.raises(ConflictError):
            await second.append(scored(theirs))
        assert await second.seek() == mine[0].position
        await outside.send(b"two")
        await second.append(scored(await read(second, 1)))
    assert await bodies(outside) == [b"scored one", b"scored two"]


async def test_a_record_that_cannot_be_scored_is_kept_with_the_reason(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        await outside.send(b"\xff\x00nope", key="k1")
        [record] = await read(log, 1)
        await log.append([Output(record=record, body=record.body, model="iris:1", error="no JSON")])
        # It counts as done.
        assert await log.seek() == record.position
    [(body, headers)] = await outside.outputs("dead-letter.decisions")
    assert body == b"\xff\x00nope"
    assert headers["farandole-error"] == "no JSON"
    assert (headers["key"], headers["farandole-model"]) == ("k1", "iris:1")
    assert headers["farandole-input"] == record.position


async def test_a_broker_that_is_killed_is_an_error_for_a_consumer_that_waits(broker: RunningBroker) -> None:
    async with opened(broker) as log:
        await log.seek()
        waiting = asyncio.create_task(log.read())
        await asyncio.sleep(0.2)
        broker.kill()
        with pytest.raises(UnavailableError, match=f"{broker.url} is not available"):
            await waiting


async def test_a_broker_that_is_away_is_named(broker: RunningBroker) -> None:
    broker.kill()
    with pytest.raises(UnavailableError, match=f"{broker.url} is not available"):
        async with opened(broker):
            pass


async def test_outputs_survive_the_kill_of_a_broker(broker: RunningBroker, outside: Outside) -> None:
    async with opened(broker) as log:
        await log.seek()
        await outside.send(b"before")
        await log.append(scored(await read(log, 1)))
    broker.kill()
    broker.start()
    async with opened(broker) as log:
        await log.seek()
        await outside.send(b"after")
        await log.append(scored(await read(log, 1)))
    assert await bodies(outside) == [b"scored before", b"scored after"]


async def test_a_redis_with_passwords_asks_for_credentials(tmp_path: Path) -> None:
    with run_broker(tmp_path, "redis") as running:
        async with Redis.from_url(running.url) as client:
            await client.config_set("requirepass", "secret")
        with pytest.raises(StreamError, match="write USER:PASSWORD to a file"):
            async with opened(running):
                pass
        source, target = addresses(running)
        for login in ("secret", "default:secret\n"):
            async with RedisLog(running.url, login, source, target) as log:
                assert await log.seek() == ""
