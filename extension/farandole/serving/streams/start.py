"""Makes the consumer of an endpoint from the values of `%serve --from` and `--to`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from farandole.exceptions import StreamError
from farandole.models.model import ModelInfo
from farandole.serving.batching import Batcher
from farandole.serving.streams.consumer import Consumer, StreamFigures
from farandole.serving.streams.log import Log
from farandole.serving.streams.scorer import Scorer
from farandole.streams.address import LABEL, StreamAddress, check_pair, parse_source, parse_target
from farandole.streams.broker import Broker, hub_broker

Used = Callable[[], None]


class Runs(Protocol):
    """A consumer of any broker."""

    async def run(self) -> None:
        """Score records until this is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The stream of an endpoint."""

    consumer: Runs
    figures: StreamFigures
    scorer: Scorer

    async def run(self) -> None:
        """Score records until this is cancelled."""
        await self.consumer.run()

    def status(self) -> dict[str, Any]:
        """Return the figures for the endpoint's status."""
        return self.figures.status()

    def check(self, info: ModelInfo) -> None:
        """Raise ModelError if a version of the model cannot score records."""
        self.scorer.check(info)


def stream_of(source: str, target: str, credentials: str, batcher: Batcher, used: Used) -> Stream:
    """Return the stream of an endpoint, whose records ``batcher`` computes.

    ``credentials`` is the path of a file, relative to the home, or empty. ``used`` is called after each batch.

    Raises:
        UsageError: an address is not valid.
        ModelError: the model cannot score records.
        StreamError: the hub has no broker, or the file of credentials cannot be read.
    """
    one, other = parse_source(source), parse_target(target)
    check_pair(one, other)
    scorer, figures = Scorer(batcher, labelled=LABEL in other.subject), StreamFigures(one, other)
    login = _content(credentials) if credentials else ""
    if one.kind != "kafka":
        consumer = Consumer(_connect(one, other, login), scorer, figures, used)
        return Stream(consumer=consumer, figures=figures, scorer=scorer)
    # The client of Kafka is large, and few endpoints need it.
    from farandole.serving.streams.kafka import TopicConsumer, kafka_broker

    topic = TopicConsumer(kafka_broker(one.server, login), one, other, scorer=scorer, figures=figures, used=used)
    return Stream(consumer=topic, figures=figures, scorer=scorer)


def _connect(source: StreamAddress, target: StreamAddress, login: str) -> Callable[[], Log]:
    if source.kind == "redis":
        from farandole.serving.streams.redis_log import RedisLog

        return lambda: RedisLog(source.server, login, source, target)
    from farandole.serving.streams.nats_log import NatsLog

    broker = Broker(source.server, login) if source.server else hub_broker()
    return lambda: NatsLog(broker, source, target)


def _content(credentials: str) -> str:
    path = Path.home() / credentials
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise StreamError(f"the file of credentials {path} cannot be read: {exc}") from exc
