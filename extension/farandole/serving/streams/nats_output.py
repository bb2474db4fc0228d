"""The messages that NATS gets for outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nats.js.api import Header

from farandole.serving.streams.log import Output
from farandole.streams.address import StreamAddress

INPUT = "Farandole-Input"
"""The header of an output with the position of its record."""
MODEL = "Farandole-Model"
ERROR = "Farandole-Error"
EXPECTED_LAST_ID = "Nats-Expected-Last-Msg-Id"
RESERVED = ("nats-", "farandole-", "status", "description")
"""The beginnings of the names of headers with which servers and clients of NATS do something."""
MOST_HEADERS = 32_000
"""The bytes of a record's headers that its output also gets. The server accepts 64 kB of headers."""
OWN_BYTES = 4_000
"""Room for the other headers."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message for an output."""

    subject: str
    body: bytes
    headers: dict[str, str]


def message_of(output: Output, target: StreamAddress, *, last: int, before: str, most: int) -> Message:
    """Return the message for an output.

    ``last`` is the sequence of the last message in the stream, and ``before`` is the position of the record of that
    message if it has been sent in the same batch. A server accepts the message only behind that one. ``most`` is the
    size of the largest message that it accepts. A larger output becomes a dead letter without a body.
    """
    others = _headers_of(output.record.headers)
    size = len(output.body) + _size(others) + OWN_BYTES
    body, error = output.body, output.error
    if size > most:
        body, others = b"", {}
        error = error or f"the output and its headers have {size} bytes, and the server accepts at most {most}"
    headers = {
        Header.EXPECTED_LAST_SEQUENCE.value: str(last),
        **({EXPECTED_LAST_ID: before} if before else {}),
        Header.MSG_ID.value: output.record.position,
        INPUT: output.record.position,
        MODEL: output.model,
        **({ERROR: error} if error else {}),
        **others,
    }
    return Message(subject=target.dead_letters if error else target.of_label(output.label), body=body, headers=headers)


def _headers_of(record: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a record that its output also gets.

    Some versions of the server look for the names of their headers in the values of others, too.
    """
    found = {
        name: value
        for name, value in record.items()
        if not name.lower().startswith(RESERVED) and "nats-" not in value.lower()
    }
    return found if _size(found) <= MOST_HEADERS else {}


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())
