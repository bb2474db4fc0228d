"""Tests for streams of NATS, against a real server: what users and other programs do with them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats
import pytest
from farandole.exceptions import StreamError
from farandole.serving.streams.log import MOST_BYTES, ConflictError, Output, UnavailableError
from farandole.serving.streams.nats_log import NatsLog
from farandole.streams.address import parse_source, parse_target
from farandole.streams.broker import Broker
from nats.js.api import RetentionPolicy, StreamConfig

from tests.brokers import RunningBroker, run_broker
from tests.unit.serving.streams.test_logs import OutsideNats, bodies, opened, read, scored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.js import JetStreamContext


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with run_broker(tmp_path, "nats") as running:
        yield running


async def score(broker: RunningBroker, *contents: bytes) -> None:
    """Send records, and score them with a consumer of its own."""
    async with opened(broker) as log:
        await log.seek()
        for body in contents:
            await OutsideNats(broker).send(body)
        await log.append(scored(await read(log, len(contents))))


async def test_records_of_a_stream_that_was_created_again_are_scored(broker: RunningBroker) -> None:
    await score(broker, b"old 1", b"old 2")
    client = await nats.connect(broker.url)
    await client.jetstream().delete_stream("calls")
    await client.close()
    await score(broker, b"new")
    assert await bodies(OutsideNats(broker)) == [b"scored old 1", b"scored old 2", b"scored new"]


async def test_a_message_of_another_program_among_the_outputs_loses_nothing(broker: RunningBroker) -> None:
    await score(broker, b"one")
    client = await nats.connect(broker.url)
    await client.jetstream().publish("decisions.mine", b"by hand")
    await client.close()
    await score(broker, b"two")
    assert await bodies(OutsideNats(broker)) == [b"scored one", b"scored two"]


async def test_outputs_that_were_emptied_are_an_error_with_a_remedy(broker: RunningBroker) -> None:
    await score(broker, b"one")
    client = await nats.connect(broker.url)
    await client.jetstream().purge_stream("decisions")
    await client.close()
    with pytest.raises(StreamError, match="was emptied, .* delete the stream to score all"):
        await score(broker, b"two")


async def test_outputs_of_another_source_are_an_error(broker: RunningBroker) -> None:
    await score(broker, b"one")
    log = NatsLog(Broker(broker.url), parse_source("mails"), parse_target("decisions.{label}"))
    async with log:
        with pytest.raises(StreamError, match="has outputs for 'calls', and not for mails"):
            await log.seek()


async def test_a_stream_of_the_user_without_the_subjects_is_an_error(broker: RunningBroker) -> None:
    client = await nats.connect(broker.url)
    await client.jetstream().add_stream(name="decisions", subjects=["decisions.*"])
    await client.close()
    with pytest.raises(StreamError, match="lacks the subject 'dead-letter.decisions'; add it"):
        await score(broker, b"one")


async def test_an_output_that_the_server_does_not_accept_is_a_dead_letter(broker: RunningBroker) -> None:
    async with opened(broker) as log:
        await log.seek()
        await OutsideNats(broker).send(b"small")
        [record] = await read(log, 1)
        await log.append([Output(record=record, body=bytes(2**20), label="late", model="iris:1")])
    [(body, headers)] = await OutsideNats(broker).outputs("dead-letter.decisions")
    assert body == b""
    assert headers["farandole-error"] == (
        "the output and its headers have 1052576 bytes, and the server accepts at most 1048576"
    )


@asynccontextmanager
async def jetstream(broker: RunningBroker) -> AsyncIterator[JetStreamContext]:
    """Connect as a program of the user."""
    client = await nats.connect(broker.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


def log_of(broker: RunningBroker, source: str, target: str = "decisions") -> NatsLog:
    return NatsLog(Broker(broker.url), parse_source(source), parse_target(target))


async def test_a_message_of_another_program_during_an_append_loses_nothing(broker: RunningBroker) -> None:
    outside = OutsideNats(broker)
    async with opened(broker) as log, jetstream(broker) as context:
        await log.seek()
        for number in range(4):
            await outside.send(str(number).encode())
        records = await read(log, 4)
        await context.publish("decisions.mine", b"by hand")
        with pytest.raises(ConflictError):
            await log.append(scored(records))
        await log.seek()
        await log.append(scored(await read(log, 4)))
    assert await bodies(outside) == [b"scored %d" % number for number in range(4)]


@pytest.mark.parametrize(
    "headers",
    [
        {"Status": "404", "Description": "Not Found"},
        {"Status": "paid"},
        {"Note": "Nats-Expected-Last-Sequence is a header"},
        {"Nats-Expected-Last-Sequence": "0"},
        {"Farandole-Error": "of an earlier try", "Farandole-Input": "of another stream"},
        {"Long": 50_000 * "a"},
    ],
)
async def test_headers_of_a_record_do_no_harm(broker: RunningBroker, headers: dict[str, str]) -> None:
    async with opened(broker) as log, opened(broker) as other:
        await log.seek()
        await other.seek()
        await OutsideNats(broker).send(b"one", **headers)
        mine, theirs = await read(log, 1), await read(other, 1)
        await log.append(scored(mine))
        with pytest.raises(ConflictError):
            await other.append(scored(theirs))
        assert await other.seek() == mine[0].position
    [(_, found)] = await OutsideNats(broker).outputs("decisions.late")
    assert "farandole-error" not in found
    assert found["farandole-input"] == mine[0].position


async def test_large_headers_and_a_large_body_are_a_dead_letter(broker: RunningBroker) -> None:
    async with opened(broker) as log:
        await log.seek()
        await OutsideNats(broker).send(bytes(2**20 - 33_000), long=30_000 * "a")
        [record] = await read(log, 1)
        await log.append([Output(record=record, body=record.body, model="iris:1", error="no JSON")])
    [(body, headers)] = await OutsideNats(broker).outputs("dead-letter.decisions")
    assert (body, headers["farandole-error"]) == (b"", "no JSON")


async def test_a_backlog_of_large_records_is_read_in_parts(broker: RunningBroker) -> None:
    async with opened(broker) as log:
        await log.seek()
        for _ in range(40):
            await OutsideNats(broker).send(bytes(600_000))
        sizes, total = [], 0
        while total < 40:
            batch = await log.read()
            sizes.append(sum(len(one.body) for one in batch.records))
            total += len(batch.records)
    assert max(sizes) <= MOST_BYTES


async def test_a_record_that_is_larger_than_a_batch_is_read_alone(tmp_path: Path) -> None:
    with run_broker(tmp_path, "nats", max_payload=12_000_000) as broker:
        async with opened(broker) as log:
            await log.seek()
            for size in (10_000_000, 10, 11_000_000):
                await OutsideNats(broker).send(bytes(size))
            found = await read(log, 3)
    assert [len(one.body) for one in found] == [10_000_000, 10, 11_000_000]


async def test_a_consumer_that_was_deleted_is_an_error(broker: RunningBroker) -> None:
    async with opened(broker) as log, jetstream(broker) as context:
        await log.seek()
        await log.read()
        [consumer] = await context.consumers_info("calls")
        await context.delete_consumer("calls", consumer.name)
        with pytest.raises(UnavailableError, match="is not available: the (consumer|server)"):
            await read(log, 1)


async def test_nothing_is_left_at_the_server_after_reading_again(broker: RunningBroker) -> None:
    async with opened(broker) as log, jetstream(broker) as context:
        for _ in range(5):
            await log.seek()
        assert len(await context.consumers_info("calls")) == 1
    async with jetstream(broker) as context:
        assert await context.consumers_info("calls") == []


async def test_the_lag_is_known_at_the_start(broker: RunningBroker) -> None:
    async with opened(broker) as log:
        await log.seek()
        assert (await log.read()).waiting == 0
        for _ in range(3):
            await OutsideNats(broker).send(b"one")
    async with opened(broker) as log:
        await log.seek()
        batch = await log.read()
        assert batch.waiting is not None
        assert len(batch.records) + batch.waiting == 3


async def test_another_subject_of_the_same_stream_is_another_source(broker: RunningBroker) -> None:
    async with jetstream(broker) as context:
        await context.add_stream(StreamConfig(name="all", subjects=["calls.*"]))
        await context.publish("calls.a", b"a")
    async with log_of(broker, "calls.a") as log:
        await log.seek()
        await log.append(scored(await read(log, 1)))
    async with log_of(broker, "calls.b") as log:
        with pytest.raises(StreamError, match="has outputs for 'calls.a', and not for calls.b; choose another `--to`"):
            await log.seek()


@pytest.mark.parametrize("subjects", [["calls.a"], ["calls.a", "calls.b"]])
async def test_records_that_are_not_all_in_one_stream_are_refused(broker: RunningBroker, subjects: list[str]) -> None:
    async with jetstream(broker) as context:
        for place, subject in enumerate(subjects):
            await context.add_stream(StreamConfig(name=f"s{place}", subjects=[subject]))
    with pytest.raises(StreamError, match=r"are not all in the stream 's0'; choose subjects of one stream"):
        async with log_of(broker, "calls.*"):
            pass


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "calls", "subjects": ["calls"], "retention": RetentionPolicy.INTEREST}, "removes records when they"),
        ({"name": "calls", "subjects": ["calls"], "retention": RetentionPolicy.WORK_QUEUE}, "removes records when"),
        ({"name": "decisions", "subjects": ["decisions", "dead-letter.decisions"], "max_age": 60}, "limit max_age"),
        ({"name": "other", "subjects": ["decisions"]}, "another stream has some of the subjects"),
        ({"name": "calls", "subjects": ["elsewhere"]}, "there is a stream with the same name and other subjects"),
    ],
)
async def test_a_stream_that_cannot_be_used_is_named(broker: RunningBroker, config: Any, message: str) -> None:
    async with jetstream(broker) as context:
        await context.add_stream(StreamConfig(**config))
    with pytest.raises(StreamError, match=message):
        async with log_of(broker, "calls"):
            pass


async def test_a_source_that_was_restored_from_an_older_copy_is_an_error(broker: RunningBroker) -> None:
    await score(broker, b"one", b"two")
    async with opened(broker) as log, jetstream(broker) as context:
        state = (await context.stream_info("calls")).state
        assert isinstance(log, NatsLog)
        log._input.state.last_seq = state.last_seq - 1
        with pytest.raises(StreamError, match="ends before the last record that has an output"):
            log._sequence(await log.position())


async def test_a_connection_that_cannot_be_used_is_closed(broker: RunningBroker) -> None:
    async with jetstream(broker) as context:
        await context.add_stream(StreamConfig(name="other", subjects=["decisions"]))
    log = log_of(broker, "calls")
    with pytest.raises(StreamError):
        await log.__aenter__()
    assert log._client.is_closed


async def test_a_server_without_jetstream_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(StreamError, match="JetStream is not enabled; ask the administrator")
    with run_broker(tmp_path, "nats", jetstream=False) as running, refused:
        async with log_of(running, "calls"):
            pass


async def test_a_login_that_the_server_refuses_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(StreamError, match="does not allow this: .*`--credentials`")
    with run_broker(tmp_path, "nats", more='authorization { token: "secret" }') as running, refused:
        async with log_of(running, "calls"):
            pass


async def test_a_permission_that_is_missing_is_named(tmp_path: Path) -> None:
    denied = 'permissions: { publish: { deny: "$JS.API.CONSUMER.MSG.>" } }'
    users = f"users = [{{ user: a, password: b, {denied} }}]"
    with run_broker(tmp_path, "nats", more=f"authorization {{ {users} }}") as running:
        log = NatsLog(Broker(running.url.replace("//", "//a:b@")), parse_source("calls"), parse_target("decisions"))
        async with log:
            await log.seek()
            with pytest.raises(StreamError, match="does not allow this: .*[Pp]ermissions [Vv]iolation"):
                await log.read()
