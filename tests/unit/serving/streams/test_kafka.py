"""Tests for topics of Kafka, with FastStream's broker in memory: no Kafka runs here."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from farandole.serving.streams.figures import StreamFigures
from farandole.serving.streams.kafka import KafkaServer, TopicConsumer
from farandole.streams.address import parse_source, parse_target
from faststream import BaseMiddleware
from faststream.kafka import KafkaBroker, KafkaMessage, TestKafkaBroker

from spawner_config.local import free_port
from tests.unit.serving.streams.test_scorer import model, scorer, three

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SOURCE, TARGET = parse_source("kafka://127.0.0.1:9092/calls"), parse_target("kafka://127.0.0.1:9092/to.{label}")
PAUSE = 0.05
Header = tuple[str, bytes | None]


class Received:
    """The messages of topics. FastStream's broker in memory hands them over in any order."""

    def __init__(self, broker: KafkaBroker, *topics: str) -> None:
        self._found: list[tuple[str, bytes | None, bytes, dict[str, Any]]] = []
        for topic in topics:
            broker.subscriber(topic, decoder=self._decode, no_reply=True)(self._keep)

    async def _decode(self, message: KafkaMessage) -> Any:
        return message.body

    async def _keep(self, message: KafkaMessage) -> None:
        raw: Any = message.raw_message
        self._found.append((raw.topic, raw.key, message.body, message.headers))

    @property
    def found(self) -> list[tuple[str, bytes | None, bytes, dict[str, Any]]]:
        """Topic, key, body and headers of each message, by topic and by record."""
        return sorted(self._found, key=lambda one: (one[0], one[3]["farandole-input"]))

    @property
    def topics(self) -> list[str]:
        return [topic for topic, _, _, _ in self.found]


class Producer:
    """Answers as the producer of aiokafka does.

    Attributes:
        refuses: returns the error for an output of this size that is not sent, or None.
        answers: returns the error with which the server answers an output for this topic, or None.
        confirms: whether the server confirms outputs.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self.refuses: Callable[[int], Exception | None] = lambda _: None
        self.answers: Callable[[str], Exception | None] = lambda _: None
        self.confirms = asyncio.Event()
        self.confirms.set()
        self.at_once = self.most_at_once = 0
        producer = self

        class Middleware(BaseMiddleware[Any, Any]):
            async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
                if cmd.destination == SOURCE.subject:
                    return await call_next(cmd)
                if error := producer.refuses(len(cmd.body)):
                    raise error
                producer.at_once += 1
                producer.most_at_once = max(producer.at_once, producer.most_at_once)
                return asyncio.ensure_future(producer.send(call_next, cmd))

        broker.add_middleware(Middleware)

    async def send(self, call_next: Any, cmd: Any) -> None:
        await asyncio.sleep(0)
        await self.confirms.wait()
        self.at_once -= 1
        if error := self.answers(cmd.destination):
            raise error
        await call_next(cmd)


class Consumed:
    """The consumer of Kafka: remembers what is committed, and where it continues."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def commit(self) -> None:
        self.calls.append("commit")

    def seek(self, partition: Any, offset: int) -> None:
        self.calls.append(f"{partition.partition}:{offset}")


class Endpoint:
    """A topic with a consumer, whose records are given to its subscriber as aiokafka does."""

    def __init__(self, folder: Path, *topics: str, subscribed: bool = True) -> None:
        self.broker, self.used, self.figures = KafkaServer(SOURCE.server).broker(), list[int](), figures()
        self._scorer, _ = scorer(model(folder, labels=("sales", "support", "spam")), three)
        if subscribed:
            self.consumer_of(KafkaServer(SOURCE.server)).subscribe(self.broker)
        self.producer = Producer(self.broker)
        self.received = Received(self.broker, *topics)
        self.consumed = Consumed()

    def consumer_of(self, server: KafkaServer) -> TopicConsumer:
        return TopicConsumer(
            server,
            SOURCE,
            TARGET,
            scorer=self._scorer,
            figures=self.figures,
            used=lambda: self.used.append(1),
            pause=PAUSE,
            answer=PAUSE,
        )

    async def get(self, *records: ConsumerRecord) -> None:
        subscriber: Any = next(one for one in self.broker.subscribers if SOURCE.subject in one.topic_names)
        subscriber.parser._setup(self.consumed)
        await subscriber.process_message(records)


def figures() -> StreamFigures:
    return StreamFigures(SOURCE, TARGET)


def record(
    value: bytes | dict[str, Any] | None = None, headers: Sequence[Header] = (), place: str = "0:1", key: bytes = b"k"
) -> ConsumerRecord:
    partition, offset = map(int, place.split(":"))
    return ConsumerRecord(
        topic=SOURCE.subject,
        partition=partition,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        key=key,
        value=json.dumps(value).encode() if isinstance(value, dict) else value,
        checksum=None,
        serialized_key_size=1,
        serialized_value_size=1,
        headers=tuple(headers),
    )


SALES, SUPPORT = {"x": [2, 1]}, {"x": [1, 2]}


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    return Endpoint(tmp_path, "to.sales", "to.support", "dead-letter.to")


async def test_records_go_to_the_topic_of_their_label_with_their_key(endpoint: Endpoint) -> None:
    async with TestKafkaBroker(endpoint.broker):
        for key, value in ((b"a", [2, 1]), (b"b", [1, 2])):
            await endpoint.broker.publish({"x": value, "id": key.decode()}, "calls", key=key)
        await endpoint.broker.publish(b"nope", "calls", key=b"c")
    found = endpoint.received.found
    assert [(topic, key) for topic, key, _, _ in found] == [
        ("dead-letter.to", b"c"),
        ("to.sales", b"a"),
        ("to.support", b"b"),
    ]
    assert json.loads(found[1][2]) == {"id": "a", "output": [2, 1, 0], "label": "sales"}
    assert found[0][2] == b"nope"
    assert "not valid JSON" in found[0][3]["farandole-error"]
    assert found[0][3]["farandole-input"].startswith("calls/0/")
    status = endpoint.figures.status()
    assert (status["dead_letters"], status["lag"], len(endpoint.used)) == (1, None, 3)


@pytest.mark.parametrize(
    ("header", "kept"),
    [(("name", b"\xe9"), "\ufffd"), (("name", None), ""), (("reply_to", b"elsewhere"), "elsewhere")],
)
async def test_headers_of_all_kinds_reach_the_scorer(endpoint: Endpoint, header: Header, kept: str) -> None:
    async with TestKafkaBroker(endpoint.broker):
        await endpoint.get(record(SALES), record(SALES, [header], "0:2"))
    assert endpoint.received.topics == ["to.sales", "to.sales"]
    assert endpoint.received.found[1][3][header[0]] == kept
    assert endpoint.consumed.calls == ["commit"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/json", b"nope"),
        (b"application/json", b"\xff"),
        (b"text/plain", b"\xff"),
        (b"text/plain", None),
    ],
)
async def test_bodies_that_are_not_what_their_header_says_are_dead_letters(
    endpoint: Endpoint, kind: bytes, body: bytes | None
) -> None:
    async with TestKafkaBroker(endpoint.broker):
        await endpoint.get(record(body, [("content-type", kind)]), record(SALES, [("content-type", kind)], "0:2"))
    assert endpoint.received.topics == ["dead-letter.to", "to.sales"]
    assert endpoint.received.found[0][2] == (body or b"")
    assert endpoint.consumed.calls == ["commit"]


async def test_an_output_lacks_the_error_of_an_earlier_attempt(endpoint: Endpoint) -> None:
    old = [("farandole-error", b"old"), ("Farandole-Model", b"old:1"), ("key", b"k1")]
    async with TestKafkaBroker(endpoint.broker):
        await endpoint.get(record(SALES, old))
    [(_, _, _, headers)] = endpoint.received.found
    assert (headers.get("farandole-error"), headers.get("Farandole-Model"), headers["key"]) == (None, None, "k1")


async def test_offsets_are_committed_when_all_outputs_are_confirmed(endpoint: Endpoint) -> None:
    endpoint.producer.confirms.clear()
    async with TestKafkaBroker(endpoint.broker):
        scoring = asyncio.create_task(
            endpoint.get(record(SALES), record(SUPPORT, place="0:2"), record(SALES, place="0:3"))
        )
        while not endpoint.figures.problem:
            await asyncio.sleep(0.01)
        assert endpoint.figures.problem == "Kafka is not available: it does not confirm outputs"
        assert (endpoint.producer.most_at_once, endpoint.consumed.calls) == (3, [])
        endpoint.producer.confirms.set()
        await scoring
    assert endpoint.received.topics == ["to.sales", "to.sales", "to.support"]
    assert (endpoint.figures.problem, endpoint.consumed.calls) == ("", ["commit"])


@pytest.mark.parametrize("when", ["refuses", "answers"])
async def test_records_whose_outputs_are_not_published_are_read_again(endpoint: Endpoint, when: str) -> None:
    batch = (record(SALES, place="0:4"), record(SALES, place="1:7"), record(SALES, place="0:5"))
    setattr(endpoint.producer, when, lambda _: KafkaError("away"))
    async with TestKafkaBroker(endpoint.broker), asyncio.timeout(10):
        began = asyncio.get_running_loop().time()
        await endpoint.get(*batch)
        assert asyncio.get_running_loop().time() - began >= PAUSE
        assert endpoint.figures.problem == "Kafka does not accept outputs: KafkaError: KafkaError: away"
        assert (endpoint.consumed.calls, endpoint.used) == (["0:4", "1:7"], [])
        setattr(endpoint.producer, when, lambda _: None)
        await endpoint.get(*batch)
    assert (endpoint.figures.problem, endpoint.consumed.calls[2:]) == ("", ["commit"])
    assert endpoint.received.topics == ["to.sales"] * 3


async def test_an_output_that_the_producer_does_not_send_is_a_dead_letter_without_a_body(endpoint: Endpoint) -> None:
    endpoint.producer.refuses = lambda size: MessageSizeTooLargeError("1 MiB") if size > 1_000 else None
    async with TestKafkaBroker(endpoint.broker):
        await endpoint.get(record({**SALES, "more": "x" * 2_000}), record(b"n" * 2_000, place="0:2"), record(SALES))
    assert endpoint.received.topics == ["dead-letter.to", "dead-letter.to", "to.sales"]
    (_, _, body, headers), (_, _, other, reason), _ = endpoint.received.found
    assert (body, other, headers["farandole-input"]) == (b"", b"", "calls/0/1")
    assert "too large for Kafka: [Error 10] MessageSizeTooLargeError: 1 MiB" in headers["farandole-error"]
    assert "not valid JSON" in reason["farandole-error"]
    assert (endpoint.consumed.calls, endpoint.figures.status()["dead_letters"]) == (["commit"], 2)


async def test_an_output_that_the_server_refuses_is_a_dead_letter_at_the_next_attempt(endpoint: Endpoint) -> None:
    endpoint.producer.answers = lambda topic: MessageSizeTooLargeError("1 KiB") if topic == "to.support" else None
    batch = (record(SALES), record(SUPPORT, place="0:2"))
    async with TestKafkaBroker(endpoint.broker):
        await endpoint.get(*batch)
        assert "MessageSizeTooLargeError" in endpoint.figures.problem
        assert endpoint.consumed.calls == ["0:1"]
        await endpoint.get(*batch)
    assert endpoint.received.topics == ["dead-letter.to", "to.sales", "to.sales"]
    assert "too large for the server" in endpoint.received.found[0][3]["farandole-error"]
    assert (endpoint.figures.problem, endpoint.consumed.calls) == ("", ["0:1", "commit"])


async def test_an_output_is_confirmed_by_all_replicas_once() -> None:
    options: Any = KafkaServer(SOURCE.server).broker()._connection_kwargs
    assert (options["acks"], options["enable_idempotence"]) == ("all", True)


@pytest.mark.filterwarnings("error:Unclosed AIO:ResourceWarning")
async def test_a_kafka_that_is_away_is_a_problem_without_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores, _ = scorer(model(tmp_path), three)
    address, found = f"kafka://127.0.0.1:{free_port()}", figures()
    attempts = list[int]()

    class Server(KafkaServer):
        def broker(self) -> KafkaBroker:
            attempts.append(1)
            return super().broker()

    consumer = TopicConsumer(
        Server(address), SOURCE, TARGET, scorer=scores, figures=found, used=lambda: None, pause=PAUSE
    )
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(30):
            while len(attempts) < 3:
                await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        gc.collect()
    assert found.problem.startswith("Kafka is not available: ")
    assert [one.getMessage() for one in caplog.records] == [f"Stream: {found.problem}"]


@pytest.mark.parametrize(("login", "encrypted"), [("ada:se:cret\n", True), ("", False)])
def test_a_password_is_only_sent_over_tls(login: str, encrypted: bool) -> None:
    security = KafkaServer("kafka://127.0.0.1:9092", login).broker().specification.security
    assert security is not None
    assert security.use_ssl is encrypted
    assert getattr(security, "password", "se:cret") == "se:cret"


async def test_after_an_error_a_new_broker_continues(tmp_path: Path) -> None:
    first, second = (Endpoint(tmp_path, subscribed=False) for _ in range(2))
    brokers = [first.broker, second.broker]

    class Server(KafkaServer):
        def broker(self) -> KafkaBroker:
            return brokers.pop(0)

        async def reach(self) -> None: ...

    first.producer.answers = lambda _: KafkaError("away")
    consumer = first.consumer_of(Server(SOURCE.server))
    async with TestKafkaBroker(first.broker), TestKafkaBroker(second.broker), asyncio.timeout(10):
        running = asyncio.create_task(consumer.run())
        await asyncio.sleep(0)
        await first.get(record(SALES))
        while brokers:
            await asyncio.sleep(0.01)
        assert "KafkaError: away" in first.figures.problem
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
