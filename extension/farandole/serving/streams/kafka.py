"""Topics of Kafka, through FastStream.

Kafka cannot append an output on the condition that the topic still ends where it is expected. A record can therefore
have two outputs if the consumer is killed. Their headers ``farandole-input`` are equal.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.security import BaseSecurity, SASLPlaintext

from farandole.serving.streams.consumer import LONGEST_PAUSE, StreamFigures
from farandole.serving.streams.log import MOST_RECORDS, Output, Record
from farandole.serving.streams.scorer import Scorer
from farandole.streams.address import DEAD_LETTER, StreamAddress

INPUT = "farandole-input"
MODEL = "farandole-model"
ERROR = "farandole-error"
WAIT_MILLISECONDS = 10


def kafka_broker(server: str, login: str) -> KafkaBroker:
    """Return a broker that is not connected. ``login`` is ``USER:PASSWORD`` for SASL over TLS, or empty."""
    user, _, password = login.strip().partition(":")
    context = ssl.create_default_context()
    security = SASLPlaintext(username=user, password=password, ssl_context=context) if user else BaseSecurity()
    return KafkaBroker(server.removeprefix("kafka://"), security=security)


class TopicConsumer:
    """Scores the records of a topic until it is cancelled. Their offsets are committed after their outputs."""

    def __init__(
        self,
        broker: KafkaBroker,
        source: StreamAddress,
        target: StreamAddress,
        *,
        scorer: Scorer,
        figures: StreamFigures,
        used: Callable[[], None],
    ) -> None:
        """Subscribe to the source. ``used`` is called after each batch, so that the hub sees activity."""
        self._broker = broker
        self._target = target
        self._scorer = scorer
        self._figures = figures
        self._used = used
        broker.subscriber(
            source.subject,
            group_id=f"farandole.{target.base}",
            batch=True,
            max_records=MOST_RECORDS,
            batch_timeout_ms=WAIT_MILLISECONDS,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,
        )(self._score)

    async def run(self) -> None:
        """Score records until this is cancelled. FastStream connects again after errors."""
        try:
            await self._start()
            await asyncio.Event().wait()
        finally:
            await self._broker.stop()

    async def _start(self) -> None:
        while True:
            try:
                await self._broker.start()
            except (KafkaError, OSError) as exc:
                self._figures.problem = f"Kafka is not available: {exc}"
                await self._broker.stop()
                await asyncio.sleep(LONGEST_PAUSE)
            else:
                self._figures.problem = ""
                return

    async def _score(self, message: KafkaMessage) -> None:
        found: Sequence[ConsumerRecord] = message.raw_message
        outputs = await self._scorer.score([_record(one) for one in found])
        for output, one in zip(outputs, found, strict=True):
            await self._publish(output, one.key)
        self._figures.add(outputs, None)
        self._used()

    async def _publish(self, output: Output, key: bytes | None) -> None:
        topic = f"{DEAD_LETTER}.{self._target.base}" if output.error else self._target.of_label(output.label)
        headers = {**output.record.headers, INPUT: output.record.position, MODEL: output.model}
        await self._broker.publish(
            output.body, topic, key=key, headers={**headers, **({ERROR: output.error} if output.error else {})}
        )


def _record(one: ConsumerRecord) -> Record:
    headers = {name: value.decode(errors="replace") for name, value in one.headers}
    return Record(position=f"{one.topic}/{one.partition}/{one.offset}", body=one.value or b"", headers=headers)
