"""Topics of Kafka, through FastStream.

Kafka cannot append an output on the condition that the topic still ends where it is expected. A record can therefore
have two outputs if the consumer is killed. Their headers ``farandole-input`` are equal.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.kafka.security import parse_security
from faststream.security import BaseSecurity, SASLPlaintext

from farandole.serving.streams.figures import StreamFigures
from farandole.serving.streams.log import MOST_RECORDS, Output, Record
from farandole.serving.streams.scorer import Scorer
from farandole.streams.address import DEAD_LETTER, StreamAddress

RESERVED = "farandole-"
"""The beginning of the names of headers that only outputs have."""
INPUT = "farandole-input"
MODEL = "farandole-model"
ERROR = "farandole-error"
WAIT_MILLISECONDS = 10
RETRY_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""Outputs that Kafka has not confirmed after this time are a problem. The producer still tries to send them."""
STOP_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KafkaServer:
    """A Kafka, and how to log in there: ``login`` is ``USER:PASSWORD`` for SASL over TLS, or empty."""

    address: str
    login: str = field(default="", repr=False)

    def broker(self) -> KafkaBroker:
        """Return a broker that is not connected. It confirms an output when all replicas in sync have it."""
        return KafkaBroker(
            self.address.removeprefix("kafka://"),
            security=self._security(),
            acks="all",
            enable_idempotence=True,
            graceful_timeout=STOP_SECONDS,
            logger=_log,
            log_level=logging.DEBUG,
        )

    async def reach(self) -> None:
        """Raise an error if the server is not available.

        FastStream does not close a producer that cannot connect, and each of these leaves a warning.
        """
        options = parse_security(self._security())
        client = AIOKafkaAdminClient(bootstrap_servers=self.address.removeprefix("kafka://"), **options)
        try:
            await client.start()
        finally:
            await client.close()

    def _security(self) -> BaseSecurity:
        user, _, password = self.login.rstrip("\r\n").partition(":")
        context = ssl.create_default_context()
        return SASLPlaintext(username=user, password=password, ssl_context=context) if user else BaseSecurity()


class TopicConsumer:
    """Scores the records of a topic until it is cancelled. Their offsets are committed after their outputs.

    After each error it begins again with a new broker behind the last offset that is committed. The old broker's
    producer may have ended: it does when the server has refused one of its outputs and gets others for the same topic.
    """

    def __init__(
        self,
        server: KafkaServer,
        source: StreamAddress,
        target: StreamAddress,
        *,
        scorer: Scorer,
        figures: StreamFigures,
        used: Callable[[], None],
        pause: float = RETRY_SECONDS,
        answer: float = ANSWER_SECONDS,
    ) -> None:
        """Store what the consumer needs.

        ``used`` is called after each batch, so that the hub sees activity. ``pause`` is the time in seconds after an
        error, and ``answer`` that after which missing confirmations are reported.
        """
        self._server = server
        self._source = source
        self._target = target
        self._scorer = scorer
        self._figures = figures
        self._used = used
        self._pause = pause
        self._answer = answer
        self._failed = asyncio.Event()
        """Whether the outputs of the last batch could not be published."""
        self._refused: dict[str, str] = {}
        """Why the server has refused outputs, by the position of their record, until they are dead letters."""

    async def begun(self) -> None:
        """Return at once: topics are created by the server, and their offsets are there from the beginning."""

    async def run(self) -> None:
        """Score records until this is cancelled."""
        while True:
            broker = self._server.broker()
            self.subscribe(broker)
            try:
                await self._start(broker)
                await self._failed.wait()
            except (KafkaError, OSError) as exc:
                self._report(f"Kafka is not available: {exc}")
                await asyncio.sleep(self._pause)
            finally:
                await _stop(broker)

    def subscribe(self, broker: KafkaBroker) -> None:
        """Score the records that a broker receives, and publish their outputs with it."""
        self._broker = broker
        broker.subscriber(
            self._source.subject,
            group_id=f"farandole.{self._target.base}",
            batch=True,
            max_records=MOST_RECORDS,
            batch_timeout_ms=WAIT_MILLISECONDS,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,
            parser=_parse,
            decoder=_decode,
            no_reply=True,
        )(self._score)

    async def _start(self, broker: KafkaBroker) -> None:
        with _quiet():
            await self._server.reach()
            await broker.start()
        # The problem of outputs that were not published stays until others are.
        if not self._failed.is_set():
            self._figures.problem = ""
        self._failed.clear()

    async def _score(self, message: KafkaMessage) -> None:
        found: Sequence[ConsumerRecord] = message.raw_message
        outputs = [self._accepted(one) for one in await self._scorer.score([_record(one) for one in found])]
        try:
            await self._publish_all(outputs, [one.key for one in found])
        except (KafkaError, OSError) as exc:
            self._report(f"Kafka does not accept outputs: {type(exc).__name__}: {exc}")
            await asyncio.sleep(self._pause)
            self._failed.set()
            # FastStream then continues with the first of these records.
            raise NackMessage from exc
        self._figures.problem = ""
        self._refused.clear()
        self._figures.add(outputs, None)
        self._used()

    def _accepted(self, output: Output) -> Output:
        """Return an output, or the dead letter of one that the server has refused because of its size."""
        error = self._refused.get(output.record.position)
        return output if error is None else _without_body(output, error)

    async def _publish_all(self, outputs: list[Output], keys: Sequence[bytes | None]) -> None:
        """Publish outputs, and wait until Kafka has confirmed all of them.

        Outputs that are too large for the producer are replaced in the list by what is published instead.
        """
        sent: list[asyncio.Future[Any]] = []
        try:
            for place, key in enumerate(keys):
                # One after the other, because a small output could otherwise overtake one that waits for space.
                outputs[place], future = await self._send(outputs[place], key)
                sent.append(future)
        finally:
            errors = await self._errors(sent)
        for output, error in zip(outputs, errors, strict=True):
            if isinstance(error, MessageSizeTooLargeError):
                self._refused[output.record.position] = f"the output is too large for the server: {error}"
        if failed := [error for error in errors if error]:
            raise failed[0]

    async def _send(self, output: Output, key: bytes | None) -> tuple[Output, asyncio.Future[Any]]:
        try:
            return output, await self._publish(output, key)
        except MessageSizeTooLargeError as exc:
            small = _without_body(output, f"the output is too large for Kafka: {exc}")
            return small, await self._publish(small, None)

    async def _publish(self, output: Output, key: bytes | None) -> asyncio.Future[Any]:
        topic = f"{DEAD_LETTER}.{self._target.base}" if output.error else self._target.of_label(output.label)
        return await self._broker.publish(output.body, topic, key=key, headers=_headers(output), no_confirm=True)

    async def _errors(self, sent: Sequence[asyncio.Future[Any]]) -> list[BaseException | None]:
        """Wait until outputs are confirmed or refused. An idempotent producer tries without end to send them."""
        while sent and (await asyncio.wait(sent, timeout=self._answer))[1]:
            self._report("Kafka is not available: it does not confirm outputs")
        return [one.exception() for one in sent]

    def _report(self, problem: str) -> None:
        if problem != self._figures.problem:
            _log.warning("Stream: %s", problem)
        self._figures.problem = problem


async def _parse(
    found: tuple[ConsumerRecord, ...], parse: Callable[[tuple[ConsumerRecord, ...]], Awaitable[KafkaMessage]]
) -> KafkaMessage:
    """Parse records without their headers, whose values FastStream would decode as UTF-8."""
    message = await parse(tuple(replace(one, headers=()) for one in found))
    message.raw_message = tuple(found)
    return message


async def _decode(message: KafkaMessage) -> Any:
    """Return the bodies as they are. FastStream would decode them as their header ``content-type`` says."""
    return message.body


def _record(one: ConsumerRecord) -> Record:
    headers = {name: (value or b"").decode(errors="replace") for name, value in one.headers}
    return Record(position=f"{one.topic}/{one.partition}/{one.offset}", body=one.value or b"", headers=headers)


def _headers(output: Output) -> dict[str, str]:
    others = {name: value for name, value in output.record.headers.items() if not name.lower().startswith(RESERVED)}
    own = {INPUT: output.record.position, MODEL: output.model, **({ERROR: output.error} if output.error else {})}
    return {**others, **own}


def _without_body(output: Output, error: str) -> Output:
    """Return a dead letter that is small: its position says which record it is."""
    return replace(output, record=replace(output.record, headers={}), body=b"", error=output.error or error)


async def _stop(broker: KafkaBroker) -> None:
    """Stop a broker. A producer with outputs that Kafka does not confirm waits without end."""
    with suppress(TimeoutError, KafkaError, OSError):
        async with asyncio.timeout(STOP_SECONDS):
            await broker.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client of Kafka, which logs each attempt to connect. The figures have the problem."""
    client = logging.getLogger("aiokafka")
    level = client.level
    client.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        client.setLevel(level)
