"""Reads the records of a stream of JetStream in their order, with a consumer at the server.

The pull subscriptions of nats-py take records with a header ``Status`` for messages of the server, and wait for ever if
the consumer is gone.

Source: https://docs.nats.io/reference/reference-protocols/nats_api_reference
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from farandole.serving.streams.log import MOST_BYTES, MOST_RECORDS

RECORD = "$JS.ACK."
"""The beginning of the reply subject of a record. Other messages are of the server."""
EXPIRES_SECONDS = 30.0
HEARTBEAT_SECONDS = 2.0
SILENT_SECONDS = 7.0
"""Without a sign of life for this time, the consumer is gone."""
INACTIVE_SECONDS = 3600.0
"""The server removes a consumer that is not used for this time."""


class SilentError(Exception):
    """Raised when the server does not answer a request for records."""


class Reader:
    """Reads a subject of a stream. ``waiting`` is the number of records that were left when the last one was sent."""

    def __init__(self, client: Client, context: JetStreamContext, stream: str) -> None:
        self._client = client
        self._context = context
        self._stream = stream
        self._name = ""
        self._subscription: Subscription | None = None
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._requested = False
        self._delivered = 0
        self._single = False
        """Whether the next record alone is larger than a batch may be."""
        self.waiting = 0

    async def start(self, subject: str, sequence: int) -> None:
        """Begin at a sequence of the stream."""
        config = ConsumerConfig(
            filter_subject=subject,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=sequence,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=INACTIVE_SECONDS,
            mem_storage=True,
        )
        made = await self._context.add_consumer(self._stream, config)
        self._name, self.waiting = made.name, made.num_pending or 0
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox, cb=self._arrived.put)

    async def stop(self) -> None:
        """Remove the consumer at the server, if it can be reached."""
        with suppress(nats.errors.Error, TimeoutError):
            if self._subscription:
                await self._subscription.unsubscribe()
            if self._name:
                await self._context.delete_consumer(self._stream, self._name)

    def lose(self) -> None:
        """Let a read that waits raise ConnectionClosedError."""
        self._arrived.put_nowait(None)

    async def read(self) -> list[Msg]:
        """Return the next records, or none if none has come for a heartbeat.

        Raises:
            SilentError: the consumer is gone, or a record was skipped.
            ConnectionClosedError: the connection is lost.
        """
        if not self._requested:
            await self._request()
        try:
            first = await asyncio.wait_for(self._arrived.get(), SILENT_SECONDS)
        except TimeoutError as exc:
            raise SilentError("the server does not send records") from exc
        found = self._records_of(first)
        while len(found) < MOST_RECORDS and not self._arrived.empty():
            found += self._records_of(self._arrived.get_nowait())
        return found

    async def _request(self) -> None:
        wanted = {
            "batch": 1 if self._single else MOST_RECORDS,
            "expires": int(EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
            **({} if self._single else {"max_bytes": MOST_BYTES}),
        }
        self._left = wanted["batch"]
        self._single, self._requested = False, True
        next_record = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._client.publish(next_record, json.dumps(wanted).encode(), reply=self._inbox)

    def _records_of(self, message: Msg | None) -> list[Msg]:
        """Return a record in a list, or nothing for a message of the server."""
        if message is None:
            raise nats.errors.ConnectionClosedError
        if not message.reply.startswith(RECORD):
            self._note(message)
            return []
        self._delivered += 1
        if message.metadata.sequence.consumer != self._delivered:
            raise SilentError("the server has skipped a record")
        self._left -= 1
        self._requested = self._left > 0
        self.waiting = message.metadata.num_pending
        return [message]

    def _note(self, message: Msg) -> None:
        """Note that the server has ended the request. A heartbeat does not end it."""
        status, description = ((message.headers or {}).get(key, "") for key in ("Status", "Description"))
        if status == "100":
            return
        if status not in {"404", "408", "409"}:
            raise SilentError(f"the server refuses to send records: {status} {description}")
        if "Consumer Deleted" in description:
            raise SilentError("the consumer at the server was deleted")
        self._requested = False
        self._single = "MaxBytes" in description and self._left == MOST_RECORDS
