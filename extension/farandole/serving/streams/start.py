"""Makes the consumer of an endpoint from the values of `%serve --from` and `--to`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.exceptions import StreamError
from farandole.models.model import ModelInfo
from farandole.serving.batching import Batcher
from farandole.serving.streams.consumer import Consumer
from farandole.serving.streams.figures import StreamFigures
from farandole.serving.streams.log import Log
from farandole.serving.streams.scorer import Scorer
from farandole.streams.address import LABEL, StreamAddress, check_pair, parse_source, parse_target
from farandole.streams.broker import Broker, check_credentials, hub_broker

Used = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What an endpoint does with its stream.

    Attributes:
        run: scores records until it is cancelled.
        begun: waits until the streams exist, or a problem is known.
        status: returns the figures for the endpoint's status.
        check: raises ModelError if a version of the model cannot score records.
    """

    run: Callable[[], Coroutine[Any, Any, None]]
    begun: Callable[[], Coroutine[Any, Any, None]]
    status: Callable[[], dict[str, Any]]
    check: Callable[[ModelInfo], None]


def stream_of(source: str, target: str, credentials: str, batcher: Batcher, used: Used) -> Stream:
    """Return the stream of an endpoint, whose records ``batcher`` computes.

    ``credentials`` is the path of a file, relative to the home, or empty. ``used`` is called after each batch.

    Raises:
        UsageError: an address is not valid.
        ModelError: the model cannot score records.
        StreamError: the hub has no broker, or the file of credentials cannot be read or used.
    """
    one, other = parse_source(source), parse_target(target)
    check_pair(one, other)
    scorer, figures = Scorer(batcher, labelled=LABEL in other.subject), StreamFigures(one, other)
    login = _login(one, Path.home() / credentials) if credentials else ""
    if one.kind == "kafka":
        # The client of Kafka is large, and few endpoints need it.
        from farandole.serving.streams.kafka import KafkaServer, TopicConsumer

        server = KafkaServer(one.server, login)
        topic = TopicConsumer(server, one, other, scorer=scorer, figures=figures, used=used)
        return Stream(run=topic.run, begun=topic.begun, status=figures.status, check=scorer.check)
    consumer = Consumer(_connect(one, other, login), scorer, figures, used)
    return Stream(run=consumer.run, begun=consumer.begun, status=figures.status, check=scorer.check)


def _connect(source: StreamAddress, target: StreamAddress, login: str) -> Callable[[], Log]:
    if source.kind == "redis":
        from farandole.serving.streams.redis_log import RedisLog

        return lambda: RedisLog(source.server, login, source, target)
    from farandole.serving.streams.nats_log import NatsLog

    broker = Broker(source.server, login) if source.server else hub_broker()
    return lambda: NatsLog(broker, source, target)


def _login(source: StreamAddress, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise StreamError(f"the file of credentials {path} cannot be read: {exc}") from exc
    if source.kind == "nats":
        check_credentials(text, str(path))
    return text
