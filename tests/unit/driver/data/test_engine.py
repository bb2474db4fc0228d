"""Tests of how Dask follows the ranks of a cluster, with a real scheduler, and with Dask workers in this process."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest
from farandole.driver.data import engine as engines
from farandole.driver.data import monitor
from farandole.driver.data.engine import DataEngine
from farandole.exceptions import RankDiedError, RankError, UsageError, WorkerStartError
from farandole.ranks.data.worker import DataWorker

SECONDS = 20
SHORT = {"LOOK": 0.02, "RETRY": 0.05, "ACTIVE": 0.05}


class Kernel:
    def __init__(self, rank):
        self.rank, self.alive, self.dask = rank, True, None

    def __repr__(self):
        return f"rank {self.rank}"


class Core:
    """Stands for the core of a cluster, whose ranks are threads of this process."""

    def __init__(self, size):
        self.name, self.ended, self.outside, self.busy, self.formed, self.handles = "main", "", False, False, True, ()
        self.source = self.group = self.world = self
        self.kernels = [Kernel(rank) for rank in range(size)]
        self.all = list(self.kernels)
        self.calls, self.broken, self.lost, self.failures, self.faults = [], set(), set(), [], []
        self.replaced = 0
        self._one = threading.Lock()

    @property
    def dead(self):
        return [kernel for kernel in self.kernels if not kernel.alive]

    async def control(self, call, *, what, timeout, kernels=None, in_subshell=False):
        chosen = self.kernels if kernels is None else list(kernels)
        assert chosen
        assert in_subshell
        return [await self._answer(kernel, call) for kernel in chosen]

    async def _answer(self, kernel, call):
        self.calls.append((call.function, kernel.rank))
        if call.function == "clock" and self.faults:
            raise self.faults.pop(0)
        if call.function not in {"start_data_worker", "end_data_worker"}:
            return None
        if kernel.rank in self.lost:
            raise RankDiedError("its process is gone")
        if kernel.rank in self.broken:
            raise RankError(f"{what_fails(kernel)}\nwith a traceback")
        if call.function == "end_data_worker":
            return await asyncio.to_thread(kernel.dask.close)
        return await asyncio.to_thread(self._start, kernel, f"w{len(self.calls)}", *call.arguments[:2])

    def _start(self, kernel, name, scheduler, security):
        # The name of a Dask worker comes from the environment of its process, which all have in common here.
        with self._one:
            os.environ["FARANDOLE_WORKER"] = name
            kernel.dask = DataWorker(scheduler, security)
            return kernel.dask.address()

    async def replace_lost(self, progress):
        if self.failures:
            raise self.failures.pop(0)
        self.kernels = [kernel if kernel.alive else Kernel(kernel.rank) for kernel in self.kernels]
        self.all += [kernel for kernel in self.kernels if kernel not in self.all]
        self.replaced += 1

    def close(self):
        for kernel in self.all:
            if kernel.dask is not None:
                kernel.dask.close()


def what_fails(kernel):
    return f"starting Dask failed on rank {kernel.rank}"


class Driver:
    """An engine, its client, and what it says to the user."""

    def __init__(self, core):
        self.core, self.said, self.client = core, [], None
        self.engine = DataEngine(core, pauses=False, progress=self.said.append)

    async def start(self):
        await self.engine.start()
        self.client = await asyncio.to_thread(self.engine.client)

    async def map(self, function, count):
        return await asyncio.to_thread(self.client.map, function, range(count), pure=False)

    async def gather(self, futures):
        return await asyncio.to_thread(self.client.gather, futures)

    async def until(self, condition):
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_complete(self):
        async with asyncio.timeout(SECONDS):
            while sorted((await self.engine.workers()).values()) != [one.rank for one in self.core.kernels]:
                await asyncio.sleep(0.01)

    async def close(self):
        if self.client is not None:
            await asyncio.to_thread(self.client.close)
        await self.engine.close()
        await asyncio.to_thread(self.core.close)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setenv("FARANDOLE_WORKER", "")
    for name, seconds in SHORT.items():
        monkeypatch.setattr(engines, f"{name}_SECONDS", seconds)
    # Otherwise all tasks may have ended before the engine knows that there are some.
    monkeypatch.setattr(monitor, "LOOK_SECONDS", SHORT["LOOK"])


@pytest.fixture
async def driver():
    driver = Driver(Core(2))
    await driver.start()
    yield driver
    await driver.close()


def slow(number):
    time.sleep(0.05)
    return number


async def test_each_rank_has_a_dask_worker(driver):
    assert sorted((await driver.engine.workers()).values()) == [0, 1]
    assert driver.engine.running
    assert await driver.gather(await driver.map(slow, 4)) == [0, 1, 2, 3]


async def test_without_bokeh_the_client_shows_no_link_to_a_dashboard(driver):
    html = await asyncio.to_thread(driver.client._repr_html_)
    assert await asyncio.to_thread(getattr, driver.client, "dashboard_link") == ""
    assert "tls://" in html
    assert "/status" not in html


async def test_while_tasks_wait_a_lost_rank_is_replaced(driver):
    """The Dask worker of the lost rank stays connected, as that of a machine without power does for minutes."""
    futures = await driver.map(slow, 60)
    lost = driver.core.kernels[0]
    lost.alive = False
    assert await driver.gather(futures) == list(range(60))
    assert driver.core.replaced == 1
    await driver.until_complete()
    assert lost not in driver.core.kernels
    assert driver.said == []


async def test_without_tasks_the_next_cell_replaces_a_lost_rank(driver):
    driver.core.kernels[0].alive = False
    await asyncio.sleep(10 * SHORT["LOOK"])
    assert driver.core.replaced == 0
    assert list((await driver.engine.workers()).values()) == [1]


async def test_during_a_cell_a_lost_rank_is_not_replaced_but_new_ranks_join(driver):
    driver.core.busy = True
    futures = await driver.map(slow, 10)
    driver.core.kernels[0].alive = False
    assert await driver.gather(futures) == list(range(10))
    assert driver.core.replaced == 0
    driver.core.kernels[0] = Kernel(0)
    driver.core.all.append(driver.core.kernels[0])
    await driver.until_complete()


async def test_a_rank_joins_when_its_world_has_formed(driver):
    core = driver.core
    core.formed = False
    # The engine may be looking for ranks that lack Dask, and would find this one.
    await asyncio.sleep(5 * SHORT["LOOK"])
    core.kernels.append(Kernel(2))
    core.all.append(core.kernels[2])
    await asyncio.sleep(5 * SHORT["LOOK"])
    assert core.calls.count(("start_data_worker", 2)) == 0
    core.formed = True
    await driver.until_complete()


async def test_a_failure_to_replace_ranks_is_said_once(driver):
    core = driver.core
    core.failures = [WorkerStartError("no room\nin detail"), WorkerStartError("no room\nin detail")]
    futures = await driver.map(slow, 60)
    core.kernels[0].alive = False
    assert await driver.gather(futures) == list(range(60))
    await driver.until(lambda: core.replaced == 1)
    assert driver.said == ["Dask cannot use all ranks now, and tries again: no room"]


async def test_a_bug_is_said_and_lost_ranks_are_still_replaced(driver):
    core = driver.core
    core.failures = [ZeroDivisionError("division by zero"), ZeroDivisionError()]
    futures = await driver.map(slow, 60)
    core.kernels[0].alive = False
    assert await driver.gather(futures) == list(range(60))
    await driver.until(lambda: core.replaced == 1)
    assert driver.said == [
        "Dask cannot use all ranks now, and tries again: ZeroDivisionError: division by zero",
        "Dask cannot use all ranks now, and tries again: ZeroDivisionError: ",
    ]


async def test_a_rank_without_dask_does_not_disturb_the_others(driver):
    core = driver.core
    core.broken = {2, 3}
    core.kernels += [Kernel(2), Kernel(3), Kernel(4)]
    core.all += core.kernels[2:]
    await driver.until(lambda: core.calls.count(("start_data_worker", 2)) >= 3)
    assert sorted((await driver.engine.workers()).values()) == [0, 1, 4]
    assert [core.calls.count(("start_data_worker", rank)) for rank in (0, 1, 4)] == [1, 1, 1]
    assert driver.said == [f"Dask cannot use all ranks now, and tries again: {what_fails(core.kernels[2])}"]
    await driver.engine.join()
    assert driver.said[1].startswith(f"Dask does not use all ranks: {what_fails(core.kernels[2])}")


async def test_the_loss_of_a_rank_that_is_not_known_yet_is_not_said(driver):
    """The scheduler has lost its Dask worker, and the call to the rank fails."""
    core = driver.core
    core.lost = {1}
    await asyncio.to_thread(core.kernels[1].dask.close)
    await driver.until(lambda: core.calls.count(("start_data_worker", 1)) >= 3)
    core.kernels[1].alive = False
    assert await driver.gather(await driver.map(slow, 4)) == [0, 1, 2, 3]
    assert driver.said == []


async def test_a_start_fails_if_a_rank_cannot_start_dask():
    core = Core(2)
    core.broken = {1}
    driver = Driver(core)
    with pytest.raises(RankError, match="on rank 1"):
        await driver.start()
    await driver.close()


async def test_the_data_of_ranks_that_leave_is_copied_and_they_do_not_join_again(driver):
    core = driver.core
    futures = await driver.map(slow, 20)
    await driver.gather(futures)
    await driver.engine.leave(core.kernels[1:])
    await asyncio.sleep(5 * SHORT["LOOK"])
    assert core.calls.count(("start_data_worker", 1)) == 1
    core.kernels.pop()
    assert await driver.gather(futures) == list(range(20))
    assert core.calls.count(("start_data_worker", 1)) == 1
    assert driver.said == []


async def test_data_that_cannot_be_copied_is_said(driver):
    futures = await driver.map(slow, 4)
    await driver.gather(futures)
    await driver.engine.leave(driver.core.kernels)
    assert driver.said == [
        "Dask could not copy all data of the ranks that stop to other ranks; it computes what is lost again"
    ]


async def test_ranks_with_tasks_are_kept_active_also_after_a_time_without_tasks(driver):
    await asyncio.sleep(4 * SHORT["ACTIVE"])
    assert not [call for call in driver.core.calls if call[0] == "clock"]
    futures = await driver.map(slow, 60)
    await driver.until(lambda: ("clock", 0) in driver.core.calls and ("clock", 1) in driver.core.calls)
    await driver.gather(futures)


async def test_a_bug_is_said_once_and_ranks_with_tasks_are_still_kept_active(driver):
    core = driver.core
    core.faults = [RankDiedError("its process is gone"), ZeroDivisionError("division"), ZeroDivisionError("division")]
    futures = await driver.map(slow, 100)
    await driver.until(lambda: ("clock", 1) in core.calls)
    assert core.faults == []
    assert driver.said == ["servers whose ranks have tasks of Dask may count as idle: ZeroDivisionError: division"]
    await driver.gather(futures)


async def test_the_engine_knows_which_dask_workers_were_ended_on_purpose(driver):
    core = driver.core
    by_rank = {rank: address for address, rank in (await driver.engine.workers()).items()}
    await driver.engine.leave(core.kernels[1:])
    assert driver.engine.left == {by_rank[1]}
    await asyncio.to_thread(core.kernels[0].dask.close)
    await driver.until(lambda: core.calls.count(("start_data_worker", 0)) == 2)
    core.kernels.pop()
    await driver.until_complete()
    assert driver.engine.left == {by_rank[1]}


async def test_the_end_of_the_cluster_ends_the_scheduler(driver):
    driver.core.ended = "cluster 'main' was stopped"
    await driver.until(lambda: not driver.engine.running)


async def test_the_end_waits_until_living_ranks_have_removed_the_files_of_dask():
    core = Core(3)
    driver = Driver(core)
    await driver.start()
    about, ranks = driver.client.scheduler_info()["workers"], await driver.engine.workers()
    folders = {rank: Path(about[address]["local_directory"]) for address, rank in ranks.items()}
    assert all(folder.is_dir() for folder in folders.values())
    core.kernels[0].alive = False
    core.broken.add(2)
    await driver.engine.close()
    assert [rank for function, rank in core.calls if function == "end_data_worker"] == [1, 2]
    assert not folders[1].exists()
    await asyncio.to_thread(driver.client.close)
    await asyncio.to_thread(core.close)


async def test_after_a_shutdown_by_the_user_no_rank_is_asked(driver):
    calls = list(driver.core.calls)
    await asyncio.to_thread(driver.client.shutdown)
    await driver.until(lambda: not driver.engine.running)
    await driver.engine.join()
    await driver.engine.leave(driver.core.kernels)
    await asyncio.sleep(5 * SHORT["LOOK"])
    assert driver.core.calls == calls
    assert driver.said == []


async def test_all_ranks_learn_about_the_pause(driver):
    await driver.engine.set_pauses(pauses=True)
    assert driver.engine.pauses
    assert driver.core.calls[-2:] == [("set_data_pauses", 0), ("set_data_pauses", 1)]


async def test_ranks_do_not_reach_a_driver_outside_the_hub():
    core = Core(1)
    core.outside = True
    driver = Driver(core)
    with pytest.raises(UsageError, match="run the notebook on the hub"):
        await driver.start()
    await driver.close()
