"""Tests for topics of Kafka, with FastStream's broker in memory: no Kafka runs here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from farandole.serving.streams.consumer import StreamFigures
from farandole.serving.streams.kafka import TopicConsumer, kafka_broker
from farandole.streams.address import parse_source, parse_target
from faststream.kafka import KafkaBroker, KafkaMessage, TestKafkaBroker

from tests.unit.serving.streams.test_scorer import model, scorer, three

if TYPE_CHECKING:
    from pathlib import Path

SOURCE, TARGET = parse_source("kafka://127.0.0.1:9092/calls"), parse_target("kafka://127.0.0.1:9092/to.{label}")


class Received:
    """The messages of topics, in their order."""

    def __init__(self, broker: KafkaBroker, *topics: str) -> None:
        self.found: list[tuple[str, bytes | None, bytes, dict[str, Any]]] = []
        for topic in topics:
            broker.subscriber(topic)(self._keep)

    async def _keep(self, message: KafkaMessage) -> None:
        raw: Any = message.raw_message
        self.found.append((raw.topic, raw.key, message.body, message.headers))


@pytest.fixture
def figures() -> StreamFigures:
    return StreamFigures(SOURCE, TARGET)


def consumer(folder: Path, figures: StreamFigures) -> tuple[KafkaBroker, TopicConsumer, list[int]]:
    broker, used = kafka_broker(SOURCE.server, ""), list[int]()
    scores, _ = scorer(model(folder, labels=("sales", "support", "spam")), three)
    topics = TopicConsumer(broker, SOURCE, TARGET, scorer=scores, figures=figures, used=lambda: used.append(1))
    return broker, topics, used


async def test_records_go_to_the_topic_of_their_label_with_their_key(tmp_path: Path, figures: StreamFigures) -> None:
    broker, _, used = consumer(tmp_path, figures)
    received = Received(broker, "to.sales", "to.support", "dead-letter.to")
    async with TestKafkaBroker(broker):
        for key, value in ((b"a", [2, 1]), (b"b", [1, 2])):
            await broker.publish({"x": value, "id": key.decode()}, "calls", key=key)
        await broker.publish(b"nope", "calls", key=b"c")
    assert [(topic, key) for topic, key, _, _ in received.found] == [
        ("to.sales", b"a"),
        ("to.support", b"b"),
        ("dead-letter.to", b"c"),
    ]
    assert json.loads(received.found[0][2]) == {"id": "a", "output": [2, 1, 0], "label": "sales"}
    assert received.found[2][2] == b"nope"
    assert "not valid JSON" in received.found[2][3]["farandole-error"]
    assert received.found[0][3]["farandole-input"].startswith("calls/0/")
    status = figures.status()
    assert (status["dead_letters"], status["lag"], len(used)) == (1, None, 3)


@pytest.mark.parametrize(("login", "encrypted"), [("ada:secret\n", True), ("", False)])
def test_a_password_is_only_sent_over_tls(login: str, encrypted: bool) -> None:
    security = kafka_broker("kafka://127.0.0.1:9092", login).specification.security
    assert security is not None
    assert security.use_ssl is encrypted
