"""Tests that invalid websocket frames are refused before memory is allocated for the sizes that the frames contain."""

import json
import struct

import pytest
from farandole.frames import INVALID, MOST_PARTS, PROTOCOL, check_frame, close_reason
from jupyter_server.services.kernels.connection.base import serialize_binary_message, serialize_msg_to_ws_v1

from tests.strange import limited_memory

HEADER = {"msg_id": "1", "msg_type": "execute_request"}
MESSAGE = {"header": HEADER, "parent_header": {}, "metadata": {}, "content": {}, "channel": "shell", "buffers": []}
PARTS = [json.dumps(part).encode() for part in (HEADER, {}, {}, {})]


def v1(*offsets, count=None, rest=b""):
    return b"".join(number.to_bytes(8, "little") for number in (count or len(offsets), *offsets)) + rest


@pytest.mark.parametrize("buffers", [[], [b"abc", b""], [b"x"] * (MOST_PARTS - 6)])
def test_messages_of_pages_and_drivers_are_accepted(buffers):
    check_frame(serialize_msg_to_ws_v1([*PARTS, *buffers], "shell"), PROTOCOL)
    check_frame(serialize_binary_message({**MESSAGE, "buffers": buffers}), None)
    check_frame(json.dumps(MESSAGE), None)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff\xff\xff\x7f",
        b"\xff" * 8,
        v1(count=2**40),
        v1(count=20_000_000),
        v1(0, 0, 0, 0, 0, 0),
        v1(56, 61, 60, 60, 60, 60, rest=b"shell"),
        v1(56, 2**63, 2**63, 2**63, 2**63, 2**63, rest=b"shell"),
        v1(*[8 * 100_001] * 100_000),
        v1(*[56, 57, 58, 59, 60, 60], rest=b"\xff{}{}"),
        serialize_msg_to_ws_v1([b"[]", b"{}", b"{}", b"{}"], "shell"),
        serialize_msg_to_ws_v1([b"[" * 100_000, b"{}", b"{}", b"{}"], "shell"),
        serialize_msg_to_ws_v1([b'{"msg_id": 1, "msg_type": "a"}', b"{}", b"{}", b"{}"], "shell"),
        "text",
    ],
)
def test_a_frame_that_claims_more_parts_than_it_has_is_refused(frame):
    with limited_memory(100_000_000), pytest.raises(ValueError, match=r"message|header|channel"):
        check_frame(frame, PROTOCOL)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack("!i", 2**31 - 1),
        struct.pack("!i", -1),
        struct.pack("!II", 1, 4),
        struct.pack("!III", 2, 12, 2**32 - 1),
        struct.pack("!II", 1, 8) + b"[" * 100_000,
        struct.pack("!II", 1, 8) + b"{}",
        "[]",
        "not JSON",
        "[" * 100_000,
        json.dumps({**MESSAGE, "header": []}),
        json.dumps({**MESSAGE, "channel": {}}),
        json.dumps({**MESSAGE, "buffers": ["text"]}),
        json.dumps({"header": HEADER}),
    ],
)
def test_a_frame_of_the_older_protocol_is_refused_too(frame):
    with limited_memory(100_000_000), pytest.raises(ValueError, match=r"message|header|channel"):
        check_frame(frame, None)


def test_the_reason_fits_into_a_close_frame():
    assert len(close_reason(ValueError("ü" * 500)).encode()) <= 123
    assert 1000 <= INVALID < 5000
