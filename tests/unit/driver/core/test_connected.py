"""Tests of whether a driver that attaches to its own cluster would find anything that it lacks."""

from types import SimpleNamespace

import pytest
from farandole.driver.core.connected import is_connected
from farandole.driver.workers.client import HubClient
from farandole.driver.workers.journal import JournalInfo, WorkerJournal
from farandole.driver.workers.source import HubWorkers
from farandole.exceptions import HubError, NoClusterError
from farandole.protocol import Status
from farandole.runs.store import RunStore

HUB = "https://hub.example.org"


class Rank:
    def __init__(self):
        self.alive, self.answering = True, True

    async def worker_answers(self):
        return self.answering


class Server:
    """A worker with the journals of these runs."""

    name = "main-w0"

    def __init__(self):
        self.runs = []

    async def records(self):
        about = {"run": {"started": 1.0, "size": 1, "workers": ["main-w0"]}}
        journals = [
            JournalInfo(run=run, kernel="k", rank=0, count=1, requests={}, about=about, led=False, ended=None)
            for run in self.runs
        ]
        return WorkerJournal(kernels=("k",), records=tuple(journals))


class Source(HubWorkers):
    """A hub that lists servers with these names."""

    def __init__(self):
        super().__init__(HubClient(url=HUB, token="secret", session=None))
        self.found, self.error = ["main-w0"], None

    async def names(self, cluster):
        if self.error is not None:
            raise self.error
        return self.found


class Cluster:
    """A cluster with one worker and two ranks, whose driver knows of one run."""

    def __init__(self, folder):
        self.ranks, self.server, self.source = [Rank(), Rank()], Server(), Source()
        self.store = RunStore(folder)
        self.own = self.run()
        self.core = SimpleNamespace(
            name="main", ended="", busy=False, workers=["main-w0"], source=self.source,
            group=SimpleNamespace(kernels=self.ranks), handles=[SimpleNamespace(worker=self.server)],
        )  # fmt: skip

    def run(self):
        """Return a new run, which the worker executes."""
        run = self.store.create(code="x", backend="none", size=1, workers=["main-w0"])
        self.server.runs.append(run.id)
        return run

    async def connected(self, hub_url=None):
        return await is_connected(self.core, hub_url, store=self.store, known={self.own.id})


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_HUB_URL", HUB)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    return Cluster(tmp_path)


@pytest.mark.parametrize("hub_url", [None, HUB, f"{HUB}/hub/home"])
async def test_a_driver_whose_ranks_all_answer_is_connected(cluster, hub_url):
    assert await cluster.connected(hub_url)


@pytest.mark.parametrize("change", [{"ended": "it was stopped"}, {"group": SimpleNamespace(kernels=[])}])
async def test_a_cluster_that_has_ended_or_was_never_found_is_not_connected(cluster, change):
    vars(cluster.core).update(change)
    assert not await cluster.connected()


@pytest.mark.parametrize("what", ["alive", "answering"])
async def test_a_rank_that_is_dead_or_does_not_answer_is_not_connected(cluster, what):
    setattr(cluster.ranks[1], what, False)
    assert not await cluster.connected()


async def test_a_cluster_of_the_same_name_on_another_hub_or_this_machine_is_another_one(cluster, monkeypatch):
    monkeypatch.setenv("FARANDOLE_HUB_URL", "https://other.example.org")
    assert not await cluster.connected()
    monkeypatch.delenv("FARANDOLE_HUB_URL")
    with pytest.raises(NoClusterError):
        await cluster.connected()
    cluster.core.source = object()
    assert not await cluster.connected()


async def test_workers_that_another_driver_has_started_are_found_by_attaching(cluster):
    cluster.source.found = ["main-w0", "main-w1"]
    assert not await cluster.connected()
    # This driver itself starts them now.
    cluster.core.busy = True
    assert await cluster.connected()


async def test_the_run_of_another_driver_is_found_by_attaching_until_it_has_ended(cluster):
    other = cluster.run()
    assert not await cluster.connected()
    # The journal of a rank that was lost has no end.
    other.finish(Status.FAILED)
    assert await cluster.connected()
    cluster.server.runs.append("a deleted run")
    assert await cluster.connected()


async def test_a_hub_that_does_not_answer_breaks_no_connection(cluster):
    cluster.source.error = HubError("it may be restarting")
    assert await cluster.connected()
