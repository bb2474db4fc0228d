"""Tests for streams of a real Redis. test_logs.py has those of what all logs promise."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from farandole.exceptions import StreamError
from farandole.serving.streams import redis_log
from farandole.serving.streams.log import Output, Record, UnavailableError
from farandole.serving.streams.redis_log import RedisLog
from farandole.streams.address import parse_source, parse_target
from redis.asyncio import Redis

from tests.brokers import run_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

MANY = {f"f{number}": "v" for number in range(4_200)}
MEGABYTE = bytes(10**6)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with run_broker(tmp_path, "redis") as running:
        yield running.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(url, decode_responses=True) as client:
        yield client


@asynccontextmanager
async def opened(url: str, source: str = "calls", target: str = "to.{label}") -> AsyncIterator[RedisLog]:
    log = RedisLog(url, "", parse_source(f"{url}/{source}"), parse_target(f"{url}/{target}"))
    async with log, asyncio.timeout(60):
        await log.seek()
        yield log


def scored(records: Sequence[Record]) -> list[Output]:
    """Return outputs whose label is the body of their record."""
    return [Output(record=one, body=b"scored", label=one.body.decode(), model="iris:1") for one in records]


async def send(client: Any, *bodies: str | bytes, **headers: str) -> None:
    for body in bodies:
        await client.xadd("calls", {"data": body, **headers})


async def score(url: str, **names: str) -> int:
    """Score records that are read together, and return their number."""
    async with opened(url, **names) as log:
        records = (await log.read()).records
        await log.append(scored(records))
        return len(records)


async def fields(client: Any, stream: str) -> list[dict[str, str]]:
    return [entry for _, entry in await client.xrange(stream)]


async def test_a_key_that_is_no_stream_is_named_before_anything_is_written(url: str, client: Any) -> None:
    await client.set("to.b", "a string")
    await send(client, "a", "b")
    for _ in range(2):
        with pytest.raises(StreamError, match="the key 'to.b' at redis://.* is not a stream; rename or delete it"):
            await score(url)
    assert set(await client.keys("*")) == {"calls", "to.b"}
    await client.delete("to.b")
    await score(url)
    assert [await client.xlen(name) for name in ("to.a", "to.b")] == [1, 1]


async def test_a_source_that_is_no_stream_is_named(url: str, client: Any) -> None:
    await client.set("calls", "a string")
    with pytest.raises(StreamError, match="the key 'calls' .* choose another `--from`"):
        await score(url)


async def test_a_record_with_very_many_fields_is_a_dead_letter_without_them(url: str, client: Any) -> None:
    await send(client, "a")
    await send(client, "b", **MANY)
    await send(client, "a")
    assert await score(url) == 3
    assert await client.xlen("to.a") == 2
    [dead] = await fields(client, "dead-letter.to")
    assert (dead["data"], dead["farandole-error"]) == (
        "b",
        "the record has 4200 fields besides 'data', and may have at most 1000",
    )
    assert dead.keys() == {"data", "farandole-input", "farandole-model", "farandole-error"}


async def test_outputs_that_redis_appended_before_an_error_are_not_appended_again(url: str, client: Any) -> None:
    # Redis cannot append to a stream with the largest ID, and the script does not check this.
    await client.xadd("to.b", {"data": "last"}, id=f"{2**64 - 1}-{2**64 - 1}")
    await send(client, "a", "b")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="exhausted the last possible ID"):
            await score(url)
    assert await client.xlen("to.a") == 1
    await client.delete("to.b")
    assert await score(url) == 1
    assert [await client.xlen(name) for name in ("to.a", "to.b")] == [1, 1]


@pytest.mark.parametrize("limit", [{"maxmemory": "1mb"}, {"min-replicas-to-write": "1"}])
async def test_a_server_that_cannot_write_appends_nothing(url: str, client: Any, limit: dict[str, str]) -> None:
    await send(client, "a", "b", MEGABYTE)
    for name, value in limit.items():
        await client.config_set(name, value)
    async with opened(url) as log:
        records = (await log.read()).records[:2]
        with pytest.raises(UnavailableError, match="refuses"):
            await log.append(scored(records))
        assert await client.keys("*") == ["calls"]
        for name in limit:
            await client.config_set(name, "0")
        await log.append(scored(records))
    assert await client.xlen("to.a") == 1


async def test_a_user_without_the_right_to_write_the_position_appends_nothing(url: str, client: Any) -> None:
    await client.acl_setuser("ada", enabled=True, passwords=["+a:b"], commands=["+@all", "-hset"], keys=["*"])
    await send(client, "a")
    log = RedisLog(url, "ada:a:b\r\n", parse_source(f"{url}/calls"), parse_target(f"{url}/to.{{label}}"))
    async with log:
        await log.seek()
        with pytest.raises(UnavailableError, match="refuses: .* can't run this command"):
            await log.append(scored((await log.read()).records))
    assert await client.keys("*") == ["calls"]


async def test_only_streams_that_did_not_exist_are_trimmed(
    url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_log, "MOST_OUTPUTS", 100)
    for _ in range(1_000):
        await client.xadd("to.mine", {"data": "of the user"})
    await send(client, *["mine", "new"] * 500)
    async with opened(url) as log:
        while records := (await log.read()).records:
            await log.append(scored(records))
            if records[-1].position == (await client.xinfo_stream("calls"))["last-generated-id"]:
                break
    assert await client.xlen("to.mine") == 1_500
    # Redis trims whole nodes of 100 entries.
    assert await client.xlen("to.new") <= 200


async def test_a_source_that_ends_before_the_position_is_an_error_with_a_remedy(url: str, client: Any) -> None:
    for place in (7, 10):
        await client.xadd("calls", {"data": "a"}, id=f"{place}-1")
    await score(url)
    await client.delete("calls")
    async with opened(url):
        # Records that are sent to a deleted stream usually have later positions.
        pass
    await client.xadd("calls", {"data": "a"}, id="9-1")
    with pytest.raises(StreamError, match="is 10-1, but the stream ends before it, at 9-1.* delete the key"):
        await score(url)
    await client.delete("farandole: calls -> to.{label}")
    assert await score(url) == 1


async def test_a_source_that_is_filled_again_is_noticed_while_records_are_awaited(
    url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_log, "WAIT_MILLISECONDS", 50)
    await client.xadd("calls", {"data": "a"}, id="10-1")
    async with opened(url) as log:
        await log.append(scored((await log.read()).records))
        assert await log.read() == redis_log.Batch(records=[], waiting=0)
        await client.delete("calls")
        await client.xadd("calls", {"data": "a"}, id="9-1")
        with pytest.raises(StreamError, match="the stream ends before it"):
            await log.read()


async def test_positions_of_other_pairs_of_streams_have_other_names(url: str, client: Any) -> None:
    for name in ("a:b", "a"):
        await client.xadd(name, {"data": "x"})
    await score(url, source="a:b", target="c")
    await score(url, source="a", target="b:c")
    assert {name for name in await client.keys("*") if name.startswith("farandole")} == {
        "farandole: a:b -> c",
        "farandole: a -> b:c",
    }


async def test_large_records_are_read_in_small_batches(url: str, client: Any) -> None:
    await send(client, *[MEGABYTE * 3] * 14)
    await send(client, *["a"] * 60)
    sizes = []
    async with opened(url) as log:
        while sum(sizes) < 74:
            sizes.append(len((await log.read()).records))
    # The first batch has more than 32 MiB. Small batches then grow.
    assert sizes == [16, 1, 2, 4, 8, 16, 27]


async def test_batches_of_medium_size_stay_as_they_are(url: str, client: Any) -> None:
    await send(client, *[MEGABYTE] * 32)
    async with opened(url) as log:
        assert [len((await log.read()).records) for _ in range(2)] == [16, 16]


async def waiting(url: str) -> int | None:
    """Score a batch, and return how many records wait behind it."""
    async with opened(url) as log:
        batch = await log.read()
        await log.append(scored(batch.records))
        return batch.waiting


async def test_records_that_wait_include_neither_trimmed_nor_scored_ones(url: str, client: Any) -> None:
    await send(client, *["a"] * 100)
    await client.xtrim("calls", maxlen=40, approximate=False)
    # Each log begins with 16 records.
    assert [await waiting(url) for _ in range(3)] == [24, 8, 0]
    await send(client, *["a"] * 30)
    assert await waiting(url) == 14
    await client.xtrim("calls", maxlen=0, approximate=False)
    await send(client, *["a"] * 20)
    assert [await waiting(url) for _ in range(2)] == [4, 0]


async def test_the_number_that_waits_is_unknown_without_a_count(url: str, client: Any) -> None:
    await send(client, *["a"] * 60)
    await waiting(url)
    await client.hdel("farandole: calls -> to.{label}", "passed")
    assert [await waiting(url) for _ in range(3)] == [None, None, 0]


async def test_an_output_lacks_the_error_of_an_earlier_attempt(url: str, client: Any) -> None:
    await send(client, "a", **{"farandole-error": "old", "Farandole-Model": "old:1", "key": "k1"})
    await score(url)
    [output] = await fields(client, "to.a")
    assert output.keys() == {"data", "key", "farandole-input", "farandole-model"}


@pytest.mark.parametrize(
    ("content", "login"),
    [
        ("secret\n", ("", "secret")),
        ("ada:se:cret\r\n", ("ada", "se:cret")),
        (":secret", ("", "secret")),
        (" secret ", ("", " secret ")),
        ("", ("", "")),
    ],
)
def test_a_login_is_split_at_the_first_colon(content: str, login: tuple[str, str]) -> None:
    assert redis_log._login(content) == login
