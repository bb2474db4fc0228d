"""Ranks that exchange changes with the parameter server of rank 0 and wait for no other rank."""

import socket
import threading
from contextlib import suppress

import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.sync.modes import Asynchronous
from farandole.ranks.training.sync.server import asynchronous_training
from farandole.ranks.training.sync.server.asynchronous_training import AsynchronousTraining
from torch import nn

from hub.process import wait_until

LENGTH = 64


class Trained:
    """A parameter of zeros on a rank, which steps move by given amounts."""

    def __init__(self, mode):
        self.parameter = nn.Parameter(torch.zeros(LENGTH))
        self.optimizer = torch.optim.SGD([self.parameter], lr=1.0)
        self.training = AsynchronousTraining(nn.ParameterList([self.parameter]), self.optimizer, mode)

    def move(self, change):
        self.parameter.grad = torch.full((LENGTH,), -float(change))
        self.optimizer.step()

    def settle(self):
        """Wait until the answer of an exchange in progress has arrived."""
        if (exchange := self.training._pending) is not None:
            exchange.answer.exception(20)

    @property
    def value(self):
        return self.parameter[0].item()


@pytest.fixture
def trained(ranks):
    """A function that returns an object for each rank, with a connection to the server."""
    made = []

    def trained(**options):
        made.extend(Trained(Asynchronous(payload="fp32", **options)) for _ in range(ranks.size))
        return made

    yield trained
    for one in made:
        one.training.close()


def connect(ranks, each):
    """Take a step that changes nothing on all ranks, in which they connect."""
    ranks.run(lambda rank: each[rank].move(0.0))
    wait_until(lambda: len(each[0].training._server._counts) == len(each), 20)


def test_the_steps_after_a_change_was_sent_are_kept(ranks, trained):
    ranks.size = 2
    each = trained(every=2)
    connect(ranks, each)
    first, second = each
    first.move(1.0)  # sends a change of 1, of which the reference takes one half
    first.settle()
    first.move(10.0)  # takes the answer
    assert first.value == pytest.approx(0.5 + 10.0)
    second.move(3.0)
    second.settle()
    second.move(0.0)
    assert second.value == pytest.approx(0.5 + 1.5)


def test_a_stopped_rank_is_not_waited_for_and_does_not_count_any_more(ranks, trained):
    each = trained(every=1)
    connect(ranks, each)
    for _ in range(40):
        for one in each[:2]:
            one.move(1.0)
            one.settle()
    each[0].training.average_now()
    # As with averages of two ranks: at first the third rank counted, with no steps.
    assert 20 < each[0].value <= 40 + 1
    assert each[0].training._figures.staleness <= 1
    ranks.run(lambda rank: each[rank].training.average_now())
    assert each[2].value > 20


def test_a_rank_waits_for_an_answer_that_is_an_interval_late(ranks, trained):
    ranks.size = 2
    each = trained(every=2, quorum=2, grace=600.0)
    connect(ranks, each)
    each[0].move(1.0)
    each[0].move(1.0)  # the answer waits for a change of the other rank
    waiting = threading.Thread(target=each[0].move, args=(1.0,), daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    each[1].move(1.0)
    waiting.join(20)
    assert not waiting.is_alive()
    assert each[0].training._figures.staleness == 2
    assert each[0].training._figures.waited > 0.2


def test_the_bytes_of_rank_0_are_those_that_its_server_sends(ranks, trained):
    each = trained(every=1)
    connect(ranks, each)
    for one in each:
        one.settle()
    ranks.run(lambda rank: (each[rank].move(0.0), each[rank].settle(), each[rank].move(0.0), each[rank].settle()))
    for one in each:
        one.move(0.0)  # counts the exchanges that have ended
    size = 4 * LENGTH
    assert [one.training._figures.sent for one in each] == [2 * 3 * size, 3 * size, 3 * size]


def test_another_world_gets_another_server(ranks, trained):
    each = trained(every=2)
    connect(ranks, each)
    before = each[0].training._server
    each[1].move(5.0)
    start = each[0].parameter.detach().clone()
    ranks.change_world(2)
    for one in each[:2]:
        one.parameter.data.copy_(start)
    connect(ranks, each[:2])
    server = each[0].training._server
    assert server is not before
    assert server._counts == {0: 0, 1: 0}
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", before.port), timeout=20):
        pass
    wait_until(lambda: len(before._counts) == 1, 20)  # that of the rank that has left


def test_the_loss_of_the_server_is_an_error_of_the_world(ranks, trained):
    ranks.size = 2
    each = trained(every=1)
    connect(ranks, each)
    each[1].settle()
    each[1].training._exchanger._peer.shutdown(socket.SHUT_RDWR)
    each[1].move(1.0)
    each[1].settle()
    with pytest.raises(ConnectionError, match="parameter server on rank 0 is gone .*: Connection closed by peer"):
        each[1].move(1.0)


def test_a_port_that_cannot_be_opened_is_named_on_all_ranks(ranks, trained, monkeypatch):
    def fail(*_args, **_options):
        raise OSError("no address")

    monkeypatch.setattr(asynchronous_training, "ParameterServer", fail)
    each = trained()

    def work(rank):
        with pytest.raises(UsageError, match=r"cannot start the parameter server \(no address\).*fd\.sync\.local"):
            each[rank].move(1.0)

    ranks.run(work)


def test_no_thread_keeps_the_process_from_ending(ranks, trained):
    ranks.size = 2
    each = trained(every=2, quorum=2, grace=600.0)
    connect(ranks, each)
    each[0].move(1.0)
    threads = [one for one in threading.enumerate() if one.name.startswith(("farandole-exchange", "farandole-param"))]
    assert len(threads) >= 3
    assert all(one.daemon for one in threads)
    each[0].training.close()
    with suppress(OSError):
        each[0].settle()
    wait_until(lambda: not any(one.is_alive() for one in threads if one.name == "farandole-exchange"), 20)
