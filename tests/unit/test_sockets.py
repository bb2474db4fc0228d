"""Cutting the connections that were opened in a while, and no others."""

import errno
import os
import socket
import subprocess
import sys

import pytest
from farandole.ranks.sockets import OpenedSockets


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


def test_what_was_opened_is_cut_for_both_ends_and_the_rest_stays(connect):
    before, sockets = connect(), OpenedSockets()
    with sockets.watch():
        client, server = connect()
    after = connect()
    sockets.cut()
    assert (server.recv(1), client.recv(1)) == (b"", b"")
    assert is_open(*before)
    assert is_open(*after)


def test_a_connection_to_a_port_that_was_open_before_is_somebody_elses(listener):
    sockets = OpenedSockets()
    with sockets.watch():
        client = socket.create_connection(listener.getsockname(), timeout=5)
        server, _ = listener.accept()
    client.close()
    sockets.cut()
    with server:
        assert server.recv(1) == b""
        server.getpeername()


def test_a_descriptor_that_was_given_to_another_socket_is_left_alone(connect):
    sockets = OpenedSockets()
    with sockets.watch():
        client, _ = connect()
    other = connect()
    os.dup2(other[0].fileno(), client.fileno())
    sockets.cut()
    assert is_open(*other)


def test_what_was_opened_so_far_is_cut_while_more_is_being_opened(connect):
    sockets = OpenedSockets()
    with sockets.watch():
        first = connect()
        sockets.cut()
        assert [end.recv(1) for end in first] == [b"", b""]
        second = connect()
    assert is_open(*second)
    sockets.cut()
    assert [end.recv(1) for end in second] == [b"", b""]


def test_what_a_library_that_gave_up_left_open_is_cut_too(connect):
    sockets, opened = OpenedSockets(), []

    def form():
        with sockets.watch():
            opened.extend(connect())
            raise RuntimeError("no peer came")

    with pytest.raises(RuntimeError):
        form()
    sockets.cut()
    assert [end.recv(1) for end in opened] == [b"", b""]


def test_a_machine_that_cannot_be_reached_breaks_what_was_opened_within_seconds(connect):
    (before, _), sockets = connect(), OpenedSockets()
    with sockets.watch():
        opened, _ = connect()
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 10
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
    assert before.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    assert before.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


BREAK = """
import fcntl, socket, struct
from farandole.ranks.sockets import OpenedSockets

def set_loopback(flags):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh", b"lo", flags))  # SIOCSIFFLAGS

set_loopback(0x41)  # IFF_UP | IFF_RUNNING
listener, sockets = socket.create_server(("127.0.0.1", 0)), OpenedSockets()
with sockets.watch():
    waiting, sending = (socket.create_connection(listener.getsockname()) for _ in range(2))
set_loopback(0)
sending.sendall(b"x")
for connection in (waiting, sending):
    connection.settimeout(60)
    try:
        connection.recv(1)
    except OSError as exc:
        print(exc.errno)
"""


def test_a_link_that_breaks_without_a_word_ends_those_who_wait_and_those_who_send():
    # In a network of its own, whose only link can be taken away.
    alone = ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a network of one's own is not allowed here")
    done = subprocess.run([*alone, sys.executable, "-c", BREAK], check=True, capture_output=True, text=True)
    assert [int(line) for line in done.stdout.split()] == [errno.ETIMEDOUT] * 2


def test_nothing_opened_is_nothing_cut():
    sockets = OpenedSockets()
    sockets.cut()
    with sockets.watch():
        pass
    sockets.cut()
