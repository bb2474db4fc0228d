"""A second thread can make a rank leave a world of the torch backend at any time."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from farandole.driver.elastic.host import ElasticTimeouts
from farandole.ranks.world import world as world_module
from farandole.ranks.world.world import COLLECTIVE_TIMEOUT, CONNECT_TIMEOUT, MEETING_TIMEOUT, TorchWorld

SECONDS = 60


@pytest.fixture
def world(monkeypatch):
    """Yield rank 0's side of a world of two ranks on this machine. Rank 1 does not arrive unless the test starts it."""
    environment = {
        "FARANDOLE_BACKEND": "torch",
        "FARANDOLE_RANK": "0",
        "FARANDOLE_SIZE": "2",
        "FARANDOLE_LOCAL_SIZE": "2",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    world = TorchWorld()
    world.open_store("127.0.0.1")
    yield world
    world.leave()


def test_a_rank_that_waits_for_a_missing_peer_is_released_and_can_retry(world, monkeypatch):
    ended, began = threading.Event(), time.monotonic()

    def press():
        while not ended.wait(0.05) and time.monotonic() - began < SECONDS:
            world.abandon()

    other = threading.Thread(target=press)
    other.start()
    try:
        with pytest.raises(dist.DistError):
            world.form()
    finally:
        ended.set()
        other.join()
    assert time.monotonic() - began < SECONDS
    monkeypatch.setenv("FARANDOLE_SIZE", "1")
    world.open_store("127.0.0.1")
    world.form()
    assert dist.get_world_size() == 1
    # After the world has formed, collectives have torch's timeout, not the shorter timeout for connecting.
    assert dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout == COLLECTIVE_TIMEOUT


def test_a_rank_gives_up_a_world_without_peers(world, monkeypatch):
    monkeypatch.setattr(world_module, "MEETING_TIMEOUT", timedelta(seconds=1))
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        world.form()
    assert time.monotonic() - began < SECONDS


def test_a_rank_gives_up_soon_if_a_peer_dies_after_they_met(world, monkeypatch):
    monkeypatch.setattr(world_module, "MEETING_TIMEOUT", timedelta(seconds=10 * SECONDS))
    world._meeting_point().set("met/1", "")
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        world.form()
    assert time.monotonic() - began < SECONDS


OTHER = """
import datetime
import sys
import torch.distributed as dist
from farandole.ranks.world.world import TorchWorld
try:
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=2, timeout=datetime.timedelta(seconds=0.1)
    )
except dist.DistError:
    world = TorchWorld()
    world.form()
    print(dist.get_world_size(), flush=True)
    sys.stdin.read()
    world.leave()
"""
"""Code of rank 1. Unlike rank 0, it has already failed to form a world once."""


def test_ranks_that_formed_a_world_and_ranks_that_failed_form_the_next_one(world, monkeypatch):
    port = world.open_store("127.0.0.1")
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "FARANDOLE_RANK": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", OTHER], env=os.environ | where, **pipes)
    try:
        # The first rank to arrive has to wait until the process of the second rank has started.
        monkeypatch.setattr(world_module, "MEETING_TIMEOUT", timedelta(seconds=SECONDS))
        world.form()
        # Both ranks must have formed the world before one leaves, because leaving cuts unfinished connections.
        assert (dist.get_world_size(), other.stdout.readline()) == (2, "2\n")
    finally:
        world.leave()
        other.communicate(timeout=SECONDS)


def test_a_rank_without_its_connection_gives_up_before_the_driver_treats_it_as_hung():
    timeouts = ElasticTimeouts()
    gloo = 5 * CONNECT_TIMEOUT.total_seconds()
    assert gloo < timeouts.grace + timeouts.abandon + timeouts.interrupt
    assert gloo + MEETING_TIMEOUT.total_seconds() < timeouts.form


def test_two_threads_leave_one_after_the_other(world, monkeypatch):
    there, asked, errors = [True], [], []
    second = threading.Event()

    def is_initialized():
        asked.append(there[0])
        if len(asked) == 2:
            second.set()
        return asked[-1]

    def destroy():
        second.wait(0.5)  # without a lock, the other thread would still find a world during this time
        if not there[0]:
            errors.append("destroyed twice")
        there[0] = False

    monkeypatch.setattr(dist, "is_initialized", is_initialized)
    monkeypatch.setattr(dist, "destroy_process_group", destroy)
    threads = [threading.Thread(target=world.abandon) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert (asked, errors) == ([True, False], [])


@pytest.mark.parametrize(("gpus", "numbers"), [(0, ("1", "2")), (1, ("0", "1"))])
def test_libraries_find_the_gpu_that_ranks_share(world, monkeypatch, gpus, numbers):
    shown = {"FARANDOLE_SIZE": "1", "FARANDOLE_LOCAL_RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(dist, "init_process_group", stop := Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError):
        world.form()
    assert stop.call_args.args == ("gloo",)
    assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]) == numbers
