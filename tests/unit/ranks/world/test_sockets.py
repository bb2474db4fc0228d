"""Tests for tracked connections, which can be cut and detect broken links. Other connections are unaffected."""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time

import pytest
from farandole.ranks.world.sockets import OpenedSockets, _enable_keepalive


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


@pytest.fixture
def connect(listener):
    opened = []

    def connect():
        client = socket.create_connection(listener.getsockname(), timeout=5)
        server, _ = listener.accept()
        server.settimeout(5)
        opened.extend([client, server])
        return client, server

    yield connect
    for connection in opened:
        connection.close()


def is_open(client, server):
    client.sendall(b"x")
    return server.recv(1) == b"x"


def test_tracked_sockets_are_cut_for_both_ends_and_others_stay(connect):
    before, sockets = connect(), OpenedSockets()
    with sockets.track():
        client, server = connect()
    after = connect()
    sockets.cut()
    assert (server.recv(1), client.recv(1)) == (b"", b"")
    assert is_open(*before)
    assert is_open(*after)


def test_a_connection_to_an_earlier_port_is_not_tracked(listener):
    sockets = OpenedSockets()
    with sockets.track():
        client = socket.create_connection(listener.getsockname(), timeout=5)
        server, _ = listener.accept()
    client.close()
    sockets.cut()
    with server:
        assert server.recv(1) == b""
        server.getpeername()


def test_a_reused_descriptor_is_not_cut(connect):
    sockets = OpenedSockets()
    with sockets.track():
        client, _ = connect()
    other = connect()
    os.dup2(other[0].fileno(), client.fileno())
    sockets.cut()
    assert is_open(*other)


def test_sockets_can_be_cut_while_others_are_being_opened(connect):
    sockets = OpenedSockets()
    with sockets.track():
        first = connect()
        sockets.cut()
        assert [end.recv(1) for end in first] == [b"", b""]
        second = connect()
    assert is_open(*second)
    sockets.cut()
    assert [end.recv(1) for end in second] == [b"", b""]


def test_sockets_left_open_by_a_failed_library_are_cut_too(connect):
    sockets, opened = OpenedSockets(), []

    def form():
        with sockets.track():
            opened.extend(connect())
            raise RuntimeError("no peer connected")

    with pytest.raises(RuntimeError):
        form()
    sockets.cut()
    assert [end.recv(1) for end in opened] == [b"", b""]


@pytest.mark.parametrize("blocking", [True, False])
def test_no_socket_changes_its_blocking_mode(connect, listener, blocking):
    before, sockets = connect(), OpenedSockets()
    with sockets.track():
        opened = connect()
    for one in (*before, *opened, listener):
        one.setblocking(blocking)
    socket.setdefaulttimeout(5)
    try:
        with sockets.track():
            pass
        _enable_keepalive({one.fileno(): os.fstat(one.fileno()).st_ino for one in opened})
    finally:
        socket.setdefaulttimeout(None)
    assert {os.get_blocking(one.fileno()) for one in (*before, *opened, listener)} == {blocking}


SO_ATTACH_FILTER = 26
SILENT_SECONDS = 12.0
"""Duration of a test in seconds. It exceeds the time limit for a machine that does not answer."""


def lose_all_that_comes(connection):
    """Make the system silently drop all packets that arrive at a socket, as if a network cable had been unplugged."""
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # rejects every packet
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))


def test_a_silently_broken_link_ends_receivers_and_senders(connect):
    sockets = OpenedSockets()
    with sockets.track():
        waiting, sending = connect(), connect()
    for connection in (*waiting, *sending):
        connection.settimeout(60)
        lose_all_that_comes(connection)
    sending[0].sendall(b"x")
    with pytest.raises(OSError) as caught:
        waiting[0].recv(1)
    assert caught.value.errno == errno.ETIMEDOUT
    # This process has shut down the socket, which the system would otherwise keep open for a quarter of an hour.
    assert sending[0].recv(1) == b""


def test_a_stopped_or_slow_peer_breaks_no_connection(connect):
    sockets = OpenedSockets()
    with sockets.track():
        sending, stopped = connect()
    sending.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += sending.send(bytes(65536))
    began = time.monotonic()
    hung_up = select.poll()
    hung_up.register(sending, 0)
    assert hung_up.poll(SILENT_SECONDS * 1000) == []
    assert time.monotonic() - began >= SILENT_SECONDS
    while sent:
        sent -= len(stopped.recv(sent))
    assert is_open(sending, stopped)


def test_only_tracked_sockets_are_probed(connect):
    (before, _), sockets = connect(), OpenedSockets()
    with sockets.track():
        opened, _ = connect()
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 10
    assert before.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_without_tracked_sockets_nothing_is_cut():
    sockets = OpenedSockets()
    sockets.cut()
    with sockets.track():
        pass
    sockets.cut()
