"""Tests that a driver's mailbox shows its status and accepts requests while a cell is running on local ranks."""

import asyncio
import os
import signal

import pytest
from farandole import Cluster
from farandole.driver.control.mailbox import MAILBOXES, ask, driver_statuses
from farandole.exceptions import FarandoleError, NoClusterError, RankError, WorkerStartError
from farandole.protocol import Status
from farandole.runs.store import RunStore

DEADLINE = 60
SLEEP = "import time\nimport farandole as fd\nfd.report(value=1.0)\ntime.sleep(600)"


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


@pytest.fixture
def cluster(store):
    cluster = Cluster.start(local=True, ranks=2, backend="none", name="mailbox", store=store)
    yield cluster
    cluster.stop()
    assert not (store.folder / MAILBOXES).exists()


async def sign(store, wanted):
    async with asyncio.timeout(DEADLINE):
        while not (found := driver_statuses(store.folder)) or not wanted(found[0]):
            await asyncio.sleep(0.05)
    return found[0]


async def test_a_blocked_cell_is_stopped_and_then_the_cluster(cluster, store):
    # The status lists the ranks while the cluster is still starting, so wait until the driver is not busy.
    here = await sign(store, lambda said: len(said.ranks) == 2 and not said.busy)
    assert (here.cluster, here.local, here.busy, here.runs) == ("mailbox", True, False, ())
    cell = asyncio.create_task(asyncio.to_thread(cluster.train, SLEEP))
    busy = await sign(store, lambda said: said.runs)
    await ask(busy, "stop_run", run=busy.runs[0], seconds=DEADLINE)
    with pytest.raises(RankError, match="was stopped on all ranks"):
        await cell
    assert store.find(busy.runs[0]).status is Status.INTERRUPTED
    await sign(store, lambda said: not said.busy and not said.runs)

    with pytest.raises(FarandoleError, match="this machine is the only worker"):
        await ask(here, "scale", workers=2, seconds=DEADLINE)
    [pid] = {int(block.text) for block in cluster.run("import os; print(os.getpid())", ranks=[1])}
    os.kill(pid, signal.SIGKILL)
    await sign(store, lambda said: [alive for _, _, alive in said.ranks] == [True, False])

    await ask(here, "stop", seconds=DEADLINE)
    with pytest.raises(NoClusterError, match="cluster 'mailbox' was stopped from the panel"):
        await asyncio.to_thread(cluster.run, "1")
    assert "stopped from the panel" in cluster.ended


@pytest.fixture
def slow_ranks(tmp_path, monkeypatch):
    """Delay the start of ranks, so that a request arrives before they are ready."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "slow.py").write_text("import time; time.sleep(30)")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.usefixtures("slow_ranks")
async def test_a_starting_cluster_has_a_driver_and_can_be_stopped(store):
    start = asyncio.create_task(
        asyncio.to_thread(Cluster.start, local=True, ranks=2, backend="none", name="early", store=store)
    )
    here = await sign(store, lambda said: said.workers)
    assert (here.workers, here.ranks, here.backend, here.busy) == (("early-w0",), (), "none", True)
    # The response may be deleted together with the mailbox, so the test does not wait for the response.
    stop = asyncio.create_task(ask(here, "stop", seconds=DEADLINE))
    with pytest.raises(NoClusterError, match="cluster 'early' was stopped from the panel"):
        await start
    stop.cancel()
    await asyncio.wait([stop])
    assert not (store.folder / MAILBOXES).exists()


def test_a_cluster_that_fails_to_start_leaves_no_mailbox(store):
    with pytest.raises(WorkerStartError):
        Cluster.start(local=True, name="late", store=store, timeout=0.01)
    assert not (store.folder / MAILBOXES).exists()
