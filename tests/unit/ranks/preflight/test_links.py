"""Tests for network measurements between two ranks, with real sockets. A peer that pauses simulates a slow network."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from farandole.ranks.preflight import links

SECONDS = 0.1
DELAY = 0.03
DEADLINE = 60


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as pool:
        yield pool


@contextmanager
def pair():
    """Yield the two sockets of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), timeout=DEADLINE)
        far, _ = server.accept()
        far.settimeout(DEADLINE)
        with closing(near), closing(far):
            yield near, far


def test_both_ends_report_the_received_bytes(pool):
    port = links.open_listener("127.0.0.1")["port"]
    served = pool.submit(links.serve, SECONDS)
    dialled = links.dial("127.0.0.1", port, SECONDS)
    assert 0 < dialled["latency"] < 1
    for answer in (dialled, served.result(DEADLINE)):
        assert answer["bytes_per_second"] > 1e6
        json.dumps(answer)


def test_a_served_listener_is_closed(pool):
    port = links.open_listener("127.0.0.1")["port"]
    served = pool.submit(links.serve, SECONDS)
    links.dial("127.0.0.1", port, SECONDS)
    served.result(DEADLINE)
    assert "refused" in links.dial("127.0.0.1", port, SECONDS)["error"]
    assert "is not listening" in links.serve(SECONDS)["error"]


def test_listening_at_an_address_of_another_host_fails():
    assert "assign" in links.open_listener("192.0.2.1")["error"]


def test_a_listener_without_a_peer_gives_up(monkeypatch):
    monkeypatch.setattr(links, "SECONDS", 0.1)
    links.open_listener("127.0.0.1")
    assert "timed out" in links.serve(SECONDS)["error"]


def test_the_latency_is_a_round_trip(pool):
    def answer_late(peer):
        while message := links._read(peer, links.PING_BYTES):
            time.sleep(DELAY)
            peer.sendall(message)

    with pair() as (near, far):
        answering = pool.submit(answer_late, far)
        assert DELAY <= links.ping(near) < 30 * DELAY
        near.close()
        answering.result(DEADLINE)


def test_the_bandwidth_counts_received_bytes(pool):
    """The measured rate is about 1 MB/s, because data in the sender's buffers does not count."""
    enough = threading.Event()

    def trickle(peer):
        while not enough.wait(0.01):
            peer.sendall(bytes(10_000))

    with pair() as (near, far):
        sending = pool.submit(trickle, far)
        assert 1e4 < links.receive(near, 10 * SECONDS) < 1.5e6
        enough.set()
        sending.result(DEADLINE)


def test_a_sender_stops_when_the_receiver_does(pool):
    with pair() as (near, far):
        sending = pool.submit(links.send, near)
        assert links.receive(far, SECONDS) > 1e6
        far.close()
        assert sending.result(DEADLINE) is None


@pytest.mark.parametrize("work", [links.ping, lambda peer: links.receive(peer, SECONDS)])
def test_a_peer_that_disconnects_is_an_error(work):
    with pair() as (near, far):
        far.close()
        with pytest.raises(OSError):
            work(near)
