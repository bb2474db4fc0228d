"""Streams of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import PubAck, StreamInfo

from farandole.exceptions import StreamError
from farandole.serving.streams.log import Batch, ConflictError, Log, Output, Record, UnavailableError
from farandole.serving.streams.nats_output import INPUT, message_of
from farandole.serving.streams.nats_reader import Reader, SilentError
from farandole.serving.streams.nats_streams import source_stream, stream_name, target_stream
from farandole.streams.address import StreamAddress
from farandole.streams.broker import Broker

T = TypeVar("T")
ANSWER_SECONDS = 5.0
PING_SECONDS = 3
NOT_THE_LAST = {10070, 10071}
"""The codes of the errors for a message that does not follow the expected one.

Source: https://github.com/nats-io/nats-server/blob/main/server/errors.json
"""
REMEDIES = {
    10039: "JetStream is not enabled for this account; ask the administrator of the server",
    10058: "there is a stream with the same name and other subjects; choose another `--from` or `--to`",
    10065: "another stream has some of the subjects; choose another `--from` or `--to`",
    10076: "JetStream is not enabled; ask the administrator of the server",
}
"""What to do about errors that do not end by themselves, by their code."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """The place of a record: its stream, when that was created, the subject that is read, and the sequence."""

    stream: str
    created: str
    subject: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.stream} {self.created} {self.subject} {self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position in an output."""
        stream, created, subject, sequence = text.split(" ")
        return cls(stream=stream, created=created, subject=subject, sequence=int(sequence))


class NatsLog(Log):
    """Reads a subject, and appends the outputs to a stream that only consumers of this source append to.

    Outputs of a batch are on their way at the same time. The server accepts an output only if the stream ends with the
    expected sequence and, within a batch, with the output of the record before. If one output is refused, so are all
    later ones.
    """

    def __init__(self, broker: Broker, source: StreamAddress, target: StreamAddress) -> None:
        self._broker = broker
        self._source = source
        self._target = target
        self._outputs = stream_name(target.base)
        self._client = broker.client()
        self._reader: Reader | None = None
        self._refused = ""
        """What the server has last reported besides the answers to requests, such as a missing permission."""
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""

    async def open(self) -> None:
        """Connect to the server, and create the two streams if they do not exist."""
        with self._named():
            await self._connect()
            self._context = self._client.jetstream(timeout=ANSWER_SECONDS)
            self._input = await source_stream(self._client, self._context, self._source)
            outputs = await target_stream(self._context, self._target)
        largest = outputs.config.max_msg_size or -1
        self._most = self._client.max_payload if largest < 0 else min(largest, self._client.max_payload)

    async def close(self) -> None:
        """Close the connection."""
        await self._stop_reading()
        await self._client.close()

    async def position(self) -> str:
        """Return the position of the last record that has an output, or an empty string."""
        with self._named():
            return (await self._end())[1]

    async def seek(self) -> str:
        """Continue behind the last record that has an output, and return its position."""
        await self._stop_reading()
        with self._named():
            self._last, position = await self._end()
            self._before = ""
            self._input = await self._context.stream_info(self._stream)
            self._reader = Reader(self._client, self._context, self._stream)
            await self._reader.start(self._source.subject, self._sequence(position) + 1)
        return position

    async def read(self) -> Batch:
        """Return the next records, or none if none has come for some seconds."""
        assert self._reader
        with self._named():
            found = await self._reader.read()
        return Batch(records=[self._record(one) for one in found], waiting=self._reader.waiting)

    async def append(self, outputs: Sequence[Output]) -> None:
        """Append outputs, each of which must follow the one before."""
        before = ["", *(one.record.position for one in outputs)]
        with self._named():
            # All are on their way before the first answer comes. `publish_async` of nats-py 2.16 loses errors.
            published = [self._publish(one, place, before[place]) for place, one in enumerate(outputs)]
            answers = await self._while_connected(asyncio.gather(*published, return_exceptions=True))
            if failed := [one for one in answers if isinstance(one, BaseException)]:
                raise failed[0]
            # The server recognises a recent output of the same record before it compares sequences.
            if any(isinstance(one, PubAck) and one.duplicate for one in answers):
                raise ConflictError
        self._last += len(outputs)

    async def _publish(self, output: Output, place: int, before: str) -> PubAck:
        message = message_of(output, self._target, last=self._last + place, before=before, most=self._most)
        return await self._context.publish(message.subject, message.body, headers=message.headers)

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
                    error_cb=self._note,
                    ping_interval=PING_SECONDS,
                )
        except (TimeoutError, nats.errors.NoServersError) as exc:
            raise UnavailableError(f"{self._broker.url} is not available: {self._refused or exc}") from exc

    async def _stop_reading(self) -> None:
        if self._reader and self._client.is_connected:
            await self._reader.stop()
        self._reader = None

    async def _end(self) -> tuple[int, str]:
        """Return the sequence of the last message of the outputs, and the position in the last output."""
        state = (await self._context.stream_info(self._outputs)).state
        # Other programs may have published, too. The sequences of a new stream begin at 1.
        for sequence in range(state.last_seq, max(state.first_seq, 1) - 1, -1):
            if position := await self._position_in(sequence):
                return state.last_seq, position
        if state.first_seq <= 1:
            return state.last_seq, ""
        raise StreamError(
            f"the stream {self._outputs!r} was emptied, so it no longer says which records of {self._source} have been "
            "scored; delete the stream to score all that are stored, or choose another `--to`"
        )

    async def _position_in(self, sequence: int) -> str:
        """Return the position in an output, or an empty string if the message is no output, or was deleted."""
        with suppress(nats.js.errors.NotFoundError):
            message = await self._context.get_msg(self._outputs, sequence)
            return str((message.headers or {}).get(INPUT, ""))
        return ""

    def _sequence(self, text: str) -> int:
        """Return the sequence of the record at a position, or 0 if the source has been created since then.

        Raises StreamError if the position is one of another source, or if the source ends before it.
        """
        if not text:
            return 0
        position = Position.parse(text)
        if (position.stream, position.subject) != (self._stream, self._source.subject):
            raise StreamError(
                f"the stream {self._outputs!r} has outputs for {position.subject!r}, and not for {self._source}; "
                "choose another `--to`"
            )
        if position.created != _created(self._input):
            return 0
        if position.sequence > self._input.state.last_seq:
            raise StreamError(
                f"the stream {self._stream!r} ends before the last record that has an output, as if an older copy of "
                f"it was restored; delete the stream {self._outputs!r} to score all records, or choose another `--to`"
            )
        return position.sequence

    @property
    def _stream(self) -> str:
        return str(self._input.config.name)

    def _record(self, message: Msg) -> Record:
        position = Position(
            stream=self._stream,
            created=_created(self._input),
            subject=self._source.subject,
            sequence=message.metadata.sequence.stream,
        )
        return Record(position=str(position), body=message.data, headers=message.headers or {})

    async def _closed(self) -> None:
        if self._reader:
            self._reader.lose()
        if not self._lost.done():
            self._lost.set_result(None)

    async def _note(self, exc: Exception) -> None:
        self._refused = str(exc) or type(exc).__name__

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
    def _named(self) -> Iterator[None]:
        """Convert errors of NATS to those of a log."""
        url = self._broker.url
        try:
            yield
        except nats.js.errors.APIError as exc:
            if exc.err_code in NOT_THE_LAST:
                raise ConflictError from exc
            if exc.err_code in REMEDIES:
                raise StreamError(f"{url} cannot be used for streams: {REMEDIES[exc.err_code]}") from exc
            raise UnavailableError(f"{url} refuses: {exc.description or exc}") from exc
        except (nats.errors.NoRespondersError, nats.js.errors.NoStreamResponseError) as exc:
            raise StreamError(f"{url} cannot be used for streams: {REMEDIES[10076]}") from exc
        except (SilentError, TimeoutError, OSError, nats.errors.Error) as exc:
            reason = self._refused or str(exc) or type(exc).__name__
            if "authorization" in reason.lower() or "permissions" in reason.lower():
                raise StreamError(
                    f"{url} does not allow this: {reason}; name a file of credentials that may with `--credentials`"
                ) from exc
            raise UnavailableError(f"{url} is not available: {reason}") from exc


def _created(stream: StreamInfo) -> str:
    return str(stream.created).replace(" ", "T")
