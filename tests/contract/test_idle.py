"""The ranks of a formed world rest between cells, and are ready at once when they are needed."""

import os
import signal
import time

import psutil
import pytest
from farandole import Cluster
from farandole.driver.world.backends.horovod import IDLE_CYCLE_MILLISECONDS
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.cells import STUCK, SUM, interrupt_when_it_prints, text
from tests.contract.worlds import run, world

CYCLE_MS = "1"
"""Horovod's default, because other tests set a longer cycle."""
REST_SECONDS = 1.5
"""Seconds after a cell until all ranks rest. Resting ranks negotiate again half a second later."""
WINDOW_SECONDS = 4.0
CPU_PERCENT = 2.0
"""Maximum CPU time of a resting rank. A rank that negotiates every millisecond uses about 10 % of a core."""
WAITING_CPU_PERCENT = 25.0
"""Maximum CPU time of a rank that waits in a collective. A rank that polls uses a whole core."""
AT_ONCE = 0.4
"""Maximum duration, in seconds, of an action that wakes the ranks. It has to hold for one of `ATTEMPTS`, because other
processes can delay an attempt. Without the wake-up, each attempt takes longer."""
ATTEMPTS = 3


@pytest.mark.release
def test_horovod_rests_and_wakes(tmp_path):
    variables = {"HOROVOD_CYCLE_TIME": CYCLE_MS, "HOROVOD_IDLE_CYCLE_TIME": str(IDLE_CYCLE_MILLISECONDS)}
    with world("horovod", 2) as environments:
        run([environment | variables for environment in environments], "tests.contract.idle_on_ranks", tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_CYCLE_TIME", CYCLE_MS)
        with Cluster.start(local=True, ranks=2, backend="horovod", store=store) as cluster:
            yield cluster


def rest(cluster):
    """Let the ranks rest after a cell with a collective, and return their process ids."""
    cluster.run(f"import os; pid = os.getpid()\n{SUM[cluster.backend]}")
    pids = [found["pid"] for found in cluster.pull("pid").values()]
    time.sleep(REST_SECONDS)
    return pids


def cpu_seconds(pid):
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def duration(work):
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_ranks_use_hardly_any_cpu_time_between_cells(cluster, backend):
    cluster.train("pass", backend=backend)
    pids = rest(cluster)
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(WINDOW_SECONDS)
    used = [100 * (cpu_seconds(pid) - start) / WINDOW_SECONDS for pid, start in zip(pids, before, strict=True)]
    assert max(used) < CPU_PERCENT, used


def test_a_rank_that_waits_in_a_collective_leaves_the_processor_to_others(cluster):
    late = f"import time, farandole as fd\nif fd.rank() == 1:\n    time.sleep({WINDOW_SECONDS})\n"
    cluster.run(f"{late}before = time.process_time()\n{SUM['horovod']}\nused = time.process_time() - before")
    used = 100 * cluster.pull("used")[0]["used"] / WINDOW_SECONDS
    assert used < WAITING_CPU_PERCENT, used


def test_the_next_cell_is_not_delayed(cluster):
    took = []
    for _ in range(ATTEMPTS):
        rest(cluster)
        took.append(duration(lambda: cluster.run(SUM["horovod"])))
    assert min(took) < AT_ONCE, took
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_another_world_forms_at_once(cluster):
    cluster.train("pass", backend="none")  # the later switch imports nothing
    took = []
    for _ in range(ATTEMPTS):
        cluster.train("pass", backend="horovod")
        rest(cluster)
        took.append(duration(lambda: cluster.train("pass", backend="none")))
    assert min(took) < AT_ONCE, took
    cluster.train("pass", backend="horovod")
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_an_interrupt_releases_a_rank_that_waits_for_a_resting_rank(cluster):
    stuck = STUCK["horovod"].replace("\n", "\n    ")
    code = f"import time, farandole as fd\ntime.sleep({REST_SECONDS})\nif fd.rank() == 1:\n    {stuck}\ntime.sleep(60)"
    assert interrupt_when_it_prints(lambda show: cluster.run(code, show=show)) < 5
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_a_resting_rank_that_dies_is_replaced(cluster):
    _, pid = rest(cluster)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "rank 1 dead" in repr(cluster), 30)
    assert text(cluster.run(SUM["horovod"])) == "2\n"
