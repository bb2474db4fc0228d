"""Script for the ranks of a Horovod world that rest while they do not use Horovod."""

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import horovod.torch as hvd
import torch
from horovod.runner.http.http_server import RendezvousServer

from tests.contract.train_on_ranks import end_process
from tests.contract.worlds import start_rendezvous

REST_SECONDS = 1.5
"""Seconds after a collective until all ranks rest. Resting ranks negotiate again half a second later."""
WINDOW_SECONDS = 3.0
CPU_PERCENT = 2.0
AT_ONCE = 0.4
"""Maximum duration, in seconds, of an action that wakes the ranks. It has to hold for one of `ATTEMPTS`, because other
processes can delay an attempt. Without the wake-up, each attempt takes longer."""
ATTEMPTS = 3
STEPS = 60
STEPS_SECONDS = 20.0
"""Maximum duration of `STEPS` collectives, which would take a minute if each of them waited for a cycle of a second."""
LATE_SECONDS = 4.0
"""How long a rank waits for its peer, which is longer than the Gloo timeout."""
GLOO_TIMEOUT_SECONDS = "3"
MEETING_SECONDS = 60.0
"""How long rank 1 waits until rank 0 has started the server for the next world."""
numbers = itertools.count()
"""The numbers of the worlds that `form` creates, which are the same on both ranks."""


def main() -> None:
    hvd.init()  # The first world has Gloo's default timeout, because imports do not end at the same time on all ranks.
    hvd.shutdown()
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = GLOO_TIMEOUT_SECONDS
    form()
    assert total() == 2
    rests()
    serves_a_late_peer()
    does_not_rest_between_steps()
    shuts_down_at_once()
    form(process_sets=[only_rank_0])
    serves_a_process_set()
    follows_the_shutdown_of_one_rank()


def form(**options: object) -> None:
    """Form a world, with a new server for the addresses of its ranks."""
    file = Path(sys.argv[1]) / str(next(numbers))
    if os.environ["HOROVOD_RANK"] == "0":
        port, _ = start_rendezvous(RendezvousServer(), 2)
        file.with_suffix(".new").write_text(str(port))
        file.with_suffix(".new").rename(file)
    deadline = time.monotonic() + MEETING_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, "rank 0 has started no server"
        time.sleep(0.01)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = file.read_text()
    hvd.init(**options)


def total(**options: object) -> int:
    """Return the number of ranks, which is counted with a collective."""
    return int(hvd.allreduce(torch.ones(1), op=hvd.Sum, name="total", **options))


def duration(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def rests() -> None:
    time.sleep(REST_SECONDS)
    before = time.process_time()
    time.sleep(WINDOW_SECONDS)
    used = 100 * (time.process_time() - before) / WINDOW_SECONDS
    assert used < CPU_PERCENT, used


def serves_a_late_peer() -> None:
    for late in (0, 1):
        took = []
        for _ in range(ATTEMPTS):
            total()
            time.sleep(REST_SECONDS + LATE_SECONDS * (hvd.rank() == late))
            took.append(duration(total))
        assert hvd.rank() != late or min(took) < AT_ONCE, took


def does_not_rest_between_steps() -> None:
    time.sleep(REST_SECONDS)
    took = duration(lambda: [total() for _ in range(STEPS)])
    assert took < STEPS_SECONDS, took


def shuts_down_at_once() -> None:
    took = []
    for _ in range(ATTEMPTS):
        form()
        total()
        time.sleep(REST_SECONDS)
        took.append(duration(hvd.shutdown))
    assert min(took) < AT_ONCE, took


def serves_a_process_set() -> None:
    """Check that a rank does not wait for ranks outside its process set, although they take part in negotiations."""
    time.sleep(REST_SECONDS)
    if hvd.rank() == 0:
        took = duration(lambda: [total(process_set=only_rank_0) for _ in range(STEPS)])
        assert took < STEPS_SECONDS, took
    assert total() == 2


def follows_the_shutdown_of_one_rank() -> None:
    hvd.shutdown()
    form()
    time.sleep(REST_SECONDS + 2 * (hvd.rank() == 0))
    took = duration(hvd.shutdown)
    assert took < 2, took


only_rank_0 = hvd.ProcessSet([0])

if __name__ == "__main__":
    main()
    end_process()
