"""Kills brokers and endpoints while records are scored, and counts records without an output or with two."""

from __future__ import annotations

import asyncio
import os
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import nats
import nats.errors
import nats.js.errors
import requests
from nats.js.api import StreamConfig
from redis.asyncio import Redis
from redis.exceptions import RedisError

from spawner_config.local import SERVING_PYTHON, free_port
from spawner_config.settings import ROOT
from tests.brokers import RunningBroker, run_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

RATE = 200
"""Records that are sent in a second."""
SHORTEST, LONGEST = 0.02, 1.5
"""Seconds between two kills."""
AWAY_SECONDS = 0.5
START_SECONDS = 60
END_SECONDS = 120
LATE_SECONDS = 3
WINDOW_SECONDS = 0.1
"""The memory of the NATS server of recent messages, which is shorter than a killed consumer is away. It is the shortest
that the server accepts."""
NATS_ERRORS = (nats.errors.Error, TimeoutError, OSError)


@dataclass(kw_only=True)
class Outcome:
    """What became of the records that the broker has accepted."""

    records: int
    lost: int
    twice: int
    disordered: int
    killed: Counter[str] = field(default_factory=Counter)


class Feed(ABC):
    """The producer of the records, and the reader of the outputs. It uses a connection until that fails."""

    def __init__(self, url: str) -> None:
        self._url = url

    @abstractmethod
    async def prepare(self) -> None:
        """Create the streams."""

    @abstractmethod
    async def send(self, body: bytes, key: str) -> bool:
        """Send a record, and return whether the broker has accepted it."""

    @abstractmethod
    async def positions(self) -> tuple[list[str], list[str]]:
        """Return the positions of all records, and those in all outputs, both in the order of their streams."""


class NatsFeed(Feed):
    """Sends to a NATS server."""

    _client: nats.NATS | None = None

    async def prepare(self) -> None:
        """Create the streams, that of the outputs with a short memory of recent messages."""
        context = (await self.connected()).jetstream()
        await context.add_stream(StreamConfig(name="calls", subjects=["calls"]))
        subjects = ["dead-letter.decisions", "decisions"]
        await context.add_stream(
            StreamConfig(name="decisions", subjects=subjects, duplicate_window=WINDOW_SECONDS, max_msgs=1_000_000)
        )

    async def send(self, body: bytes, key: str, subject: str = "calls") -> bool:
        """Send a record, and return whether the broker has accepted it."""
        try:
            context = (await self.connected()).jetstream(timeout=2)
            await context.publish(subject, body, headers={"Nats-Msg-Id": key} if subject == "calls" else None)
        except (*NATS_ERRORS, nats.js.errors.APIError):
            self._client = None
            return False
        return True

    async def positions(self) -> tuple[list[str], list[str]]:
        """Return the positions of all records, and those in all outputs."""
        context = (await self.connected()).jetstream()
        records = [str(sequence) for sequence, _ in await self._all(context, "calls")]
        outputs = [headers["Farandole-Input"].split()[-1] for _, headers in await self._all(context, "decisions")]
        return records, outputs

    async def _all(self, context: Any, stream: str) -> list[tuple[int, dict[str, str]]]:
        if not (await context.stream_info(stream)).state.messages:
            return []
        reader = await context.subscribe("", stream=stream, ordered_consumer=True)
        found = []
        while not found or found[-1].metadata.num_pending:
            found.append(await reader.next_msg(timeout=10))
        await reader.unsubscribe()
        return [(one.metadata.sequence.stream, one.headers or {}) for one in found]

    async def connected(self) -> nats.NATS:
        """Return a connection, which is a new one if the earlier one was lost."""
        if self._client is None or not self._client.is_connected:
            self._client = await nats.connect(
                self._url, allow_reconnect=False, max_reconnect_attempts=1, connect_timeout=2, error_cb=_ignore
            )
        return self._client


class RedisFeed(Feed):
    """Sends to a Redis."""

    async def prepare(self) -> None:
        """Connect."""
        self._client = Redis.from_url(self._url, socket_timeout=2)

    async def send(self, body: bytes, key: str) -> bool:
        """Send a record, and return whether the broker has accepted it."""
        try:
            await self._client.xadd("calls", {"data": body, "key": key})
        except (RedisError, OSError):
            return False
        return True

    async def positions(self) -> tuple[list[str], list[str]]:
        """Return the positions of all records, and those in all outputs."""
        records, outputs = [await self._client.xrange(stream) for stream in ("calls", "decisions")]
        return (
            [place.decode() for place, _ in records],
            [fields[b"farandole-input"].decode() for _, fields in outputs],
        )


class Scoring:
    """An endpoint process that scores the records, and that can be killed."""

    def __init__(self, broker: RunningBroker, models: Path, model: str) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        self._words = [f"--from={broker.url}/calls", f"--to={broker.url}/decisions"]
        self._models = models
        self._model = model
        self.start()

    def start(self) -> None:
        """Start the process."""
        own = {"FARANDOLE_MODELS": str(self._models), "JUPYTERHUB_SERVICE_URL": f"{self.address}/"}
        command = [str(SERVING_PYTHON), "-m", "farandole.serving", self._model, "--no-login", *self._words]
        with (self._models / "scoring.log").open("ab") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **own}, cwd=ROOT, stdout=log, stderr=log)

    def status(self) -> dict[str, Any]:
        """Return what the endpoint says of its stream, or an empty dict if it does not answer."""
        with suppress(requests.ConnectionError, requests.Timeout):
            found: dict[str, Any] = requests.get(f"{self.address}/farandole/status", timeout=5).json()["stream"]
            return found
        return {}

    def kill(self) -> None:
        """End the process as a lost machine would."""
        self._process.kill()
        self._process.wait()


@contextmanager
def scoring(broker: RunningBroker, models: Path, model: str) -> Iterator[Scoring]:
    """Run an endpoint process until the block ends."""
    endpoint = Scoring(broker, models, model)
    try:
        yield endpoint
    finally:
        endpoint.kill()


async def soak(folder: Path, models: Path, model: str, *, scheme: str, kills: int, seed: int) -> Outcome:
    """Kill a broker and two endpoints at random moments. Both score the same records."""
    random, killed = Random(seed), Counter[str]()
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(run_broker(folder, scheme))
        endpoints = [stack.enter_context(scoring(broker, models, model)) for _ in range(2)]
        feed = NatsFeed(broker.url) if scheme == "nats" else RedisFeed(broker.url)
        await feed.prepare()
        async with _sending(feed):
            await _first_output(feed)
            for _ in range(kills):
                await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
                victim = random.choice(["broker", "first", "second"])
                killed[victim] += 1
                away = random.uniform(0, AWAY_SECONDS)
                await _kill(broker if victim == "broker" else endpoints[victim == "second"], away)
        return await outcome(feed, killed)


async def _first_output(feed: Feed) -> None:
    outputs: list[str] = []
    async with asyncio.timeout(START_SECONDS):
        while not outputs:
            await asyncio.sleep(0.2)
            _, outputs = await feed.positions()


async def _kill(victim: RunningBroker | Scoring, away: float) -> None:
    victim.kill()
    await asyncio.sleep(away)
    await asyncio.to_thread(victim.start)


@asynccontextmanager
async def _sending(feed: Feed) -> AsyncIterator[None]:
    """Send records while the block runs, each one until it is accepted."""
    stop = asyncio.Event()

    async def send() -> None:
        number = 0
        while not stop.is_set():
            body = b'{"input": [1, 2, 3, 4], "number": %d}' % number
            number += await feed.send(body, f"record-{number}")
            await asyncio.sleep(1 / RATE)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        stop.set()
        await task


async def outcome(feed: Feed, killed: Counter[str]) -> Outcome:
    """Wait until all records have an output, at most `END_SECONDS`, and compare them."""
    records, outputs = await feed.positions()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while set(records) - set(outputs):
                await asyncio.sleep(1)
                records, outputs = await feed.positions()
    # The other endpoint may still score what it has read.
    await asyncio.sleep(LATE_SECONDS)
    records, outputs = await feed.positions()
    places = {position: place for place, position in enumerate(records)}
    order = [places[one] for one in outputs]
    return Outcome(
        records=len(records),
        lost=len(set(records) - set(outputs)),
        twice=len(outputs) - len(set(outputs)),
        disordered=sum(later < earlier for earlier, later in pairwise(order)),
        killed=killed,
    )


async def _ignore(_exc: Exception) -> None:
    """Ignore an error of the connection, which the next call raises, too."""
