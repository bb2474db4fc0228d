"""Streams of NATS JetStream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header, PubAck, StreamConfig, StreamInfo

from farandole.exceptions import StreamError
from farandole.serving.streams.log import MOST_RECORDS, Batch, ConflictError, Log, Output, Record, UnavailableError
from farandole.streams.address import DEAD_LETTER, LABEL, StreamAddress
from farandole.streams.broker import Broker

T = TypeVar("T")
INPUT = "Farandole-Input"
"""The header of an output with the position of its record: stream, time of the stream's creation, and sequence."""
MODEL = "Farandole-Model"
ERROR = "Farandole-Error"
POSITION = re.compile(r"(?P<stream>.+)@(?P<created>[^@]+):(?P<sequence>[0-9]+)")
SOURCE_SECONDS = 7 * 24 * 3600.0
"""How long a stream that this module creates keeps records. Older ones are removed."""
MOST_OUTPUTS = 1_000_000
"""The outputs that a stream that this module creates keeps. The newest output always stays, and has the position."""
WAIT_SECONDS = 30.0
ANSWER_SECONDS = 5.0
PING_SECONDS = 3
WRONG_LAST_SEQUENCE = 10071
"""The code of the error for an output that does not follow the expected one.

Source: https://github.com/nats-io/nats-server/blob/main/server/errors.json
"""
HEADERS_BYTES = 2_000
"""Room for headers beside the body of an output."""


class NatsLog(Log):
    """Reads a subject, and appends the outputs to a stream that only consumers of this source append to.

    An output is published with the header ``Nats-Expected-Last-Sequence``, so the server refuses it unless it directly
    follows the output before. Many outputs are therefore on their way at the same time, and if one is refused, all
    later ones are, too.
    """

    def __init__(self, broker: Broker, source: StreamAddress, target: StreamAddress) -> None:
        self._broker = broker
        self._source = source
        self._target = target
        self._outputs = _stream_name(target.base)
        self._dead = f"{DEAD_LETTER}.{target.base}"
        self._client = Client()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""

    async def open(self) -> None:
        """Connect to the server, and create the two streams if they do not exist."""
        with _named(self._broker.url):
            await self._connect()
            self._context = self._client.jetstream(timeout=ANSWER_SECONDS)
            self._input = await self._source_stream()
            await self._target_stream()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def seek(self) -> str:
        """Find the last record that has an output, and continue behind it."""
        with _named(self._broker.url):
            self._last, position = await self._end()
            sequence = self._sequence(position) if position else 0
            self._reader = await self._context.pull_subscribe(
                self._source.subject,
                stream=self._input.config.name,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=sequence + 1,
                    ack_policy=AckPolicy.NONE,
                    inactive_threshold=2 * WAIT_SECONDS,
                    mem_storage=True,
                ),
            )
            self._delivered = 0
        return position

    async def read(self) -> Batch:
        """Return the next records, in the order of the stream."""
        with _named(self._broker.url):
            found: list[Msg] = []
            while not found:
                try:
                    found = await self._while_connected(self._reader.fetch(MOST_RECORDS, timeout=WAIT_SECONDS))
                except nats.errors.TimeoutError:
                    # No record has come.
                    continue
        for message in found:
            self._delivered += 1
            if message.metadata.sequence.consumer != self._delivered:
                raise UnavailableError(f"{self._broker.url} has skipped a record")
        return Batch(records=[self._record(one) for one in found], waiting=found[-1].metadata.num_pending)

    async def append(self, outputs: Sequence[Output]) -> None:
        """Append outputs, each of which must follow the one before."""
        with _named(self._broker.url):
            # All are on their way before the first answer comes. `publish_async` of nats-py 2.16 loses errors.
            published = [self._publish(one, self._last + place) for place, one in enumerate(outputs)]
            answers = await self._while_connected(asyncio.gather(*published, return_exceptions=True))
            if failed := [one for one in answers if isinstance(one, BaseException)]:
                raise failed[0]
            # The server recognises a recent output of the same record before it compares sequences.
            if any(isinstance(one, PubAck) and one.duplicate for one in answers):
                raise ConflictError
        self._last += len(outputs)

    async def _publish(self, output: Output, last: int) -> PubAck:
        return await self._context.publish(
            self._subject(output), self._body(output), headers=self._headers(output, last)
        )

    async def _connect(self) -> None:
        """Connect without later attempts: a lost connection is an error, after which the position is read again."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.connect(
                    **self._broker.options(),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    closed_cb=self._closed,
                    error_cb=_ignore,
                    ping_interval=PING_SECONDS,
                )
        except (TimeoutError, nats.errors.NoServersError) as exc:
            raise self._client.last_error or exc from exc

    async def _source_stream(self) -> StreamInfo:
        try:
            name = await self._context.find_stream_name_by_subject(self._source.subject)
            return await self._context.stream_info(name)
        except nats.js.errors.NotFoundError:
            name = _stream_name(self._source.subject)
            return await self._context.add_stream(
                StreamConfig(name=name, subjects=[self._source.subject], max_age=SOURCE_SECONDS)
            )

    async def _target_stream(self) -> None:
        wanted = {self._target.subject.replace(LABEL, "*"), self._dead}
        try:
            found = await self._context.stream_info(self._outputs)
        except nats.js.errors.NotFoundError:
            config = StreamConfig(name=self._outputs, subjects=sorted(wanted), max_msgs=MOST_OUTPUTS)
            await self._context.add_stream(config)
            return
        if missing := wanted - set(found.config.subjects or ()):
            raise StreamError(
                f"the stream {self._outputs!r} exists and lacks the subject {min(missing)!r}; add it to the stream, or "
                "choose another `--to`"
            )

    async def _end(self) -> tuple[int, str]:
        """Return the sequence of the last output, and the position of its record. Skip messages of other programs."""
        state = (await self._context.stream_info(self._outputs)).state
        if not state.last_seq:
            return 0, ""
        for sequence in range(state.last_seq, state.first_seq - 1, -1):
            if position := await self._position(sequence):
                return state.last_seq, position
        raise StreamError(
            f"the stream {self._outputs!r} was emptied, so it no longer says which records of {self._source} have been "
            "scored; delete the stream to score all that are stored, or choose another `--to`"
        )

    async def _position(self, sequence: int) -> str:
        """Return the position in an output, or an empty string if the message is no output, or was deleted."""
        with suppress(nats.js.errors.NotFoundError):
            message = await self._context.get_msg(self._outputs, sequence)
            return str((message.headers or {}).get(INPUT, ""))
        return ""

    def _sequence(self, position: str) -> int:
        """Return the sequence of the record at a position, or 0 if the source has been created since then."""
        match = POSITION.fullmatch(position)
        if match is None or match["stream"] != self._input.config.name:
            raise StreamError(
                f"the stream {self._outputs!r} has outputs for {position.partition('@')[0]!r}, and not for "
                f"{self._source}; choose another `--to`"
            )
        return int(match["sequence"]) if match["created"] == self._created else 0

    @property
    def _created(self) -> str:
        return str(self._input.created).replace(" ", "T")

    def _record(self, message: Msg) -> Record:
        position = f"{self._input.config.name}@{self._created}:{message.metadata.sequence.stream}"
        return Record(position=position, body=message.data, headers=message.headers or {})

    def _subject(self, output: Output) -> str:
        return self._dead if output.error or self._is_large(output) else self._target.of_label(output.label)

    def _body(self, output: Output) -> bytes:
        return b"" if self._is_large(output) else output.body

    def _is_large(self, output: Output) -> bool:
        return len(output.body) + HEADERS_BYTES > self._client.max_payload

    def _headers(self, output: Output, last: int) -> dict[str, str]:
        """Return the headers of an output, with those of the record that are not for the server."""
        own = {name: value for name, value in output.record.headers.items() if not name.lower().startswith("nats-")}
        error = output.error
        if self._is_large(output):
            most = self._client.max_payload
            error = error or f"the output has {len(output.body)} bytes, and the server accepts at most {most}"
        return {
            **own,
            Header.EXPECTED_LAST_SEQUENCE: str(last),
            Header.MSG_ID: output.record.position,
            INPUT: output.record.position,
            MODEL: output.model,
            **({ERROR: error} if error else {}),
        }

    async def _closed(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    async def _while_connected(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``. Raise ConnectionClosedError if the connection is lost before."""
        task = asyncio.ensure_future(work)
        waited: set[asyncio.Future[Any]] = {task, self._lost}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise nats.errors.ConnectionClosedError
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Convert errors of NATS to those of a log."""
    try:
        yield
    except nats.js.errors.APIError as exc:
        if exc.err_code == WRONG_LAST_SEQUENCE:
            raise ConflictError from exc
        raise UnavailableError(f"{url} refuses: {exc.description or exc}") from exc
    except (TimeoutError, OSError, nats.errors.Error) as exc:
        raise UnavailableError(f"{url} is not available: {str(exc) or type(exc).__name__}") from exc


async def _ignore(_exc: Exception) -> None:
    """Ignore an error of the connection, which the call that needs the connection raises, too."""


def _stream_name(subject: str) -> str:
    """Return a name for the stream with a subject. Names have no dots, wildcards and spaces."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", subject).strip("_") or "records"
