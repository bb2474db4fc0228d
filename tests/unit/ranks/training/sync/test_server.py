"""Tests for the parameter server and the exchangers of ranks, over connections of this machine."""

import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from farandole.ranks.training.sync.server import frames
from farandole.ranks.training.sync.server.exchanger import Exchanger
from farandole.ranks.training.sync.server.parameter_server import WINDOW, ParameterServer, Shares

from hub.process import wait_until

KEY = b"k" * frames.KEY_BYTES


@pytest.fixture
def connect():
    """A function that starts a server with four zeros and ``ranks`` exchangers, one after the other."""
    closers = []

    def connect(ranks, **options):
        defaults = {"payload": "fp32", "quorum": 1, "grace": 60.0, "host": "127.0.0.1", "key": KEY}
        server = ParameterServer(torch.zeros(4), ranks=ranks, **{**defaults, **options})
        closers.append(server.close)
        connect.servers.append(server)
        for rank in range(ranks):
            exchanger = Exchanger("127.0.0.1", server.port, KEY, rank=rank, payload=options.get("payload", "fp32"))
            closers.append(exchanger.close)
            yield exchanger

    connect.servers = []
    yield connect
    for close in reversed(closers):
        close()


def exchange(exchanger, change, steps=1):
    return exchanger.start(torch.as_tensor(change).expand(4).clone(), steps).result(20).difference


def two_that_wait_for_each_other(connect, **options):
    """Return two exchangers of a server with a quorum of two. The first one has seen all changes of the second."""
    first, second = connect(2, quorum=2, **options)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(exchange, second, 0.0)
        wait_until(lambda: connect.servers[-1]._counts.get(1) == 1, 20)
        exchange(first, 0.0)
        answer.result(20)
    return first, second


def test_a_rank_that_connects_later_gets_the_changes_before_it(connect):
    ranks = connect(2)
    assert exchange(next(ranks), 1.0).tolist() == [0.5] * 4
    assert exchange(next(ranks), 0.0).tolist() == [0.5] * 4


@pytest.mark.parametrize("payload", ["fp32", "int4"])
def test_no_change_is_lost_if_all_ranks_send_at_once(connect, payload):
    exchangers = list(connect(3, payload=payload))
    generator = torch.Generator().manual_seed(0)
    changes = torch.randn(3, WINDOW - 1, 4, generator=generator)
    sums, known = torch.zeros(3, 4), torch.zeros(3, 4)

    def work(rank):
        for change in [*changes[rank], torch.zeros(4)]:
            answer = exchangers[rank].start(change, 1).result(20)
            sums[rank] += answer.sent
            known[rank] += answer.difference

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for rank in range(3):
        known[rank] += exchange(exchangers[rank], 0.0)
    # As many changes as this are weighted alike.
    expected = (sums.sum(0) / 3).expand(3, 4)
    torch.testing.assert_close(known, expected, rtol=0, atol=1e-5 if payload == "fp32" else 0.2)


def test_an_answer_waits_for_the_quorum_but_not_longer_than_the_grace(connect):
    first, second = two_that_wait_for_each_other(connect)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(exchange, first, 2.0)
        assert exchange(second, 4.0).tolist() == [3.0] * 4
        assert answer.result(20).tolist() == [3.0] * 4
    only, _ = two_that_wait_for_each_other(connect, grace=0.05)
    assert exchange(only, 2.0).tolist() == [1.0] * 4


def test_a_rank_that_leaves_is_not_waited_for(connect):
    first, second = two_that_wait_for_each_other(connect)
    second.close()
    assert exchange(first, 2.0).tolist() == [1.0] * 4


def test_closing_ends_an_exchange_that_waits(connect):
    first, _second = two_that_wait_for_each_other(connect)
    answer = first.start(torch.zeros(4), 1)
    with pytest.raises(TimeoutError):
        answer.result(0.2)
    first.close()
    with pytest.raises(OSError, match="closed"):
        answer.result(20)


def test_a_stranger_without_the_key_gets_nothing(connect):
    [exchanger, _] = connect(2)
    port = exchanger._peer.getpeername()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
        frames.send_key(stranger, b"x" * frames.KEY_BYTES, 1)
        received = b""
        with suppress(ConnectionResetError):
            received = stranger.recv(1)
    assert received == b""


def test_ranks_can_connect_after_an_error_of_the_machine(connect, monkeypatch):
    accept, errors = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")]

    def accept_or_fail(listener):
        if errors:
            raise errors.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_or_fail)
    [exchanger] = connect(1)
    assert exchange(exchanger, 1.0).tolist() == [1.0] * 4
    assert errors == []


def test_a_slower_rank_counts_less():
    shares = Shares(2)
    assert [shares.add(rank, 30 - 20 * rank) for _ in range(WINDOW - 1) for rank in range(2)] == [0.5] * (
        2 * WINDOW - 2
    )
    shares.add(0, 30)
    shares.add(1, 10)
    assert shares.add(0, 30) == pytest.approx(0.75, abs=0.05)
    assert shares.add(1, 10) == pytest.approx(0.25, abs=0.05)
