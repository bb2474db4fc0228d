"""Checks websocket frames before Jupyter Server parses them.

Each frame declares how many parts it has and where they begin. The parsers in Jupyter Server trust these numbers, so
even a frame of four bytes can make them allocate gigabytes. Source:
``jupyter_server/services/kernels/connection/base.py``.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

from farandole.reading import parse_json

PROTOCOL = "v1.kernel.websocket.jupyter.org"
MOST_PARTS = 10_000
"""The maximum number of offsets in a message: one for each JSON part and buffer, and up to two more."""
JSON_PARTS = 4
"""The number of parts that are JSON: header, parent header, metadata and content."""
INVALID = 1007
"""The websocket close code for a message with invalid content (RFC 6455)."""
REASON_BYTES = 120
"""The maximum length of the reason in a close frame, in bytes. RFC 6455 allows 123."""


def check_frame(frame: bytes | str, protocol: str | None) -> None:
    """Raise ValueError if a frame from a browser or a driver is not a valid message to a kernel."""
    if protocol == PROTOCOL:
        _check_v1(frame)
    elif isinstance(frame, bytes):
        _check_message(parse_json(_first_part(frame), "the message"))
    else:
        message = parse_json(frame, "the message")
        if message.get("buffers"):
            raise ValueError("a message with buffers must be binary")
        _check_message(message)


def close_reason(error: ValueError) -> str:
    """Return the error message, shortened to fit into a close frame."""
    return str(error).encode()[:REASON_BYTES].decode(errors="ignore")


def check_parts(frame: bytes) -> tuple[int, ...]:
    """Return the offsets in a frame of protocol v1.

    The offsets are the positions at which the channel and each part begin, followed by the position at which the last
    part ends. The frame begins with the number of offsets and the offsets themselves, as 8-byte little-endian integers.
    Raises ValueError unless the offsets are in ascending order and within the frame.
    """
    return _offsets(frame, int.from_bytes(frame[:8], "little"), "<", "Q", least=JSON_PARTS + 2)


def _check_v1(frame: bytes | str) -> None:
    if not isinstance(frame, bytes):
        raise ValueError("a message of this protocol must be binary")
    offsets = check_parts(frame)
    _check_text(frame[offsets[0] : offsets[1]])
    _check_header(parse_json(frame[offsets[1] : offsets[2]], "the header"))


def _first_part(frame: bytes) -> bytes:
    """Return the JSON part of a binary message in the older protocol, whose offsets are 4-byte big-endian integers."""
    offsets = _offsets(frame, int.from_bytes(frame[:4], "big"), ">", "I", least=1)
    return frame[offsets[0] : offsets[1] if len(offsets) > 1 else None]


def _offsets(frame: bytes, count: int, order: str, kind: str, *, least: int) -> tuple[int, ...]:
    width = struct.calcsize(order + kind)
    if not least <= count <= MOST_PARTS or len(frame) < width * (count + 1):
        raise ValueError(f"a message of {len(frame)} bytes cannot have {count} offsets")
    offsets = struct.unpack_from(f"{order}{count}{kind}", frame, width)
    ends = (width * (count + 1), *offsets, len(frame))
    if any(start > stop for start, stop in pairwise(ends)):
        raise ValueError("the offsets of a message must ascend and lie within it")
    return offsets


def _check_text(channel: bytes) -> None:
    try:
        channel.decode()
    except UnicodeDecodeError as exc:
        raise ValueError("the channel is not text") from exc


def _check_message(message: dict[str, Any]) -> None:
    for key in ("header", "parent_header", "metadata", "content"):
        if not isinstance(message.get(key), dict):
            raise ValueError(f"the {key} of a message must be a JSON object")
    if not isinstance(message.get("channel", ""), str):
        raise ValueError("the channel is not text")
    _check_header(message["header"])


def _check_header(header: dict[str, Any]) -> None:
    for key in ("msg_id", "msg_type"):
        if not isinstance(header.get(key), str):
            raise ValueError(f"the {key} in the header of a message must be a string")
