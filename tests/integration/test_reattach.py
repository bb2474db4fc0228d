"""A run outlives its driver, the proxy and the hub: nothing that a rank says is missing or there twice."""

import json
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from farandole import Cluster
from farandole.driver.store import RunStore
from farandole.exceptions import NoClusterError, RankError
from farandole.protocol import Status

from hub.process import processes_of, wait_until
from tests.hub import RunningHub, run_hub

CELL = """
import pathlib, time
import farandole as fd
step = 0
while not pathlib.Path({end!r}).exists():
    print("line", step)
    fd.report(step=step, value=step * 0.5)
    step += 1
    time.sleep(0.02)
{last}
fd.result(step)
"""
DRIVER = """
import json, sys
from pathlib import Path
from farandole import Cluster
from farandole.driver.store import RunStore
told = json.loads(sys.stdin.readline())
where = {"hub_url": told["hub"], "token": told["token"], "store": RunStore(Path(told["store"]))}
Cluster.start(2, name=told["cluster"], backend=told["backend"], **where).train(told["code"], name="long")
"""
PATIENCE = 60


def steps_on_disk(store):
    """Return how many reports each rank has in the newest run's files."""
    return [len(path.read_text().splitlines()) for path in sorted(store.folder.glob("*/metrics/*.jsonl"))]


def all_have(store, least):
    return lambda: len(steps_on_disk(store)) == 2 and min(steps_on_disk(store)) >= least


def assert_whole(store, run):
    """Check that each report and each line of both ranks is in the run's files, once and in order."""
    frame = store.load_run(run.id)
    for rank, count in run.results.items():
        assert frame[frame["rank"] == rank]["step"].to_list() == list(range(count))
        assert (run.folder / "logs" / f"rank-{rank}.log").read_text().splitlines() == [
            f"line {n}" for n in range(count)
        ]
    assert len(frame) == len(run.dataframe()) == sum(run.results.values())
    assert sorted(run.results) == [0, 1]


class Lost:
    """A run whose driver was killed."""

    def __init__(self, hub, folder, name, backend="none", last=""):
        self.end = folder / "end"
        self.store = RunStore(folder / "runs")
        self.where = {"hub_url": hub.url, "token": hub.token_for("lost"), "progress": print}
        self.name = name
        code = CELL.format(end=str(self.end), last=last)
        told = {"hub": hub.url, "token": self.where["token"], "store": str(self.store.folder), "code": code}
        self._driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, text=True)
        self._driver.stdin.write(json.dumps({**told, "cluster": name, "backend": backend}) + "\n")
        self._driver.stdin.flush()
        try:
            wait_until(all_have(self.store, 20), 2 * PATIENCE)
        finally:
            self._driver.send_signal(signal.SIGKILL)
            self._driver.wait()
            self._driver.stdin.close()
        assert self.store.list()[0].status is Status.LOST

    def wait_for_the_end_of(self, hub, rank):
        """Return once a rank's worker has seen it end; a dying kernel cannot be attached to."""
        path = f"/user/lost/{self.name}-w{rank}/farandole/records"
        wait_until(lambda: hub.api(self.where["token"], "GET", path).json()["records"][0]["ended"], PATIENCE)

    def attach(self, store=None):
        return Cluster.attach(self.name, store=store or self.store, **self.where)

    def stop(self):
        # A test that ended well has stopped it itself.
        with suppress(NoClusterError):
            Cluster.stop_named(self.name, **self.where)


@pytest.fixture
def lost(hub, tmp_path, request):
    lost = Lost(hub, tmp_path, request.node.originalname[5:27].replace("_", "-").strip("-"), *request.param)
    yield lost
    lost.stop()


def only(cluster):
    [background] = cluster.background.values()
    return background


@pytest.mark.parametrize("lost", [("torch",)], indirect=True)
def test_goes_on_when_its_driver_was_killed(lost):
    cluster = lost.attach()
    run = only(cluster).run
    assert run.status is Status.RUNNING
    assert lost.store.list()[0].status is Status.RUNNING
    heard = len(run.dataframe())
    assert heard >= 40
    wait_until(lambda: len(run.dataframe()) > heard + 20, PATIENCE)
    lost.end.touch()
    run.wait(PATIENCE)
    assert run.status is Status.FINISHED
    assert_whole(lost.store, run)
    blocks = []
    only(cluster).show(blocks.append)
    assert "".join(block.text for block in blocks).startswith("line 0\nline 1\n")
    assert "".join(block.text for block in cluster.run("print('usable')")) == "usable\n"
    cluster.close()


@pytest.mark.parametrize("lost", [()], indirect=True)
@pytest.mark.parametrize("shared", [True, False])
def test_is_there_when_it_ended_meanwhile(lost, tmp_path, shared):
    lost.end.touch()
    store = lost.store if shared else RunStore(tmp_path / "elsewhere")
    cluster = lost.attach(store)
    run = only(cluster).run.wait(PATIENCE)
    assert (run.name, run.status) == ("long", Status.FINISHED)
    assert_whole(store, run)
    cluster.close()
    again = lost.attach(store)
    assert again.background == {}
    again.close()


@pytest.mark.parametrize("lost", [("none", "if fd.rank() == 1: raise ValueError('late')")], indirect=True)
def test_fails_as_its_cell_would(lost):
    lost.end.touch()
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*\): ValueError: late"):
            only(cluster).run.wait(PATIENCE)
        assert lost.store.list()[0].status is Status.FAILED


@pytest.mark.parametrize(
    "lost", [("none", "import os, signal\nif fd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)")], indirect=True
)
def test_tells_of_a_rank_that_died_when_nobody_led(hub, lost):
    lost.end.touch()
    lost.wait_for_the_end_of(hub, 1)
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*\): its process is gone, killed by signal 9"):
            only(cluster).run.wait(PATIENCE)
        frame = lost.store.load_run(only(cluster).run.id)
        assert frame[frame["rank"] == 1]["step"].to_list() == list(range((frame["rank"] == 1).sum()))


@pytest.mark.parametrize("lost", [()], indirect=True)
def test_tells_of_a_worker_that_died_when_nobody_led(hub, lost):
    known = len(lost.store.load_run(lost.store.list()[0].id).query("rank == 1"))
    assert known >= 20
    [worker] = [one for one in processes_of(hub.state) if is_worker(one, f"{lost.name}-w1")]
    worker.kill()
    wait_until(lambda: Cluster.running(**lost.where) == {lost.name: 1}, PATIENCE)
    lost.end.touch()
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*-w1\): its process is gone, lost: its worker ended"):
            only(cluster).run.wait(PATIENCE)
        assert len(only(cluster).run.dataframe().query("rank == 1")) == known
        assert len(lost.store.load_run(only(cluster).run.id).query("rank == 1")) == known


def is_worker(process, name):
    return (
        "farandole.server.worker" in " ".join(process.cmdline()) and process.environ().get("FARANDOLE_WORKER") == name
    )


@pytest.mark.parametrize("lost", [()], indirect=True)
def test_can_be_stopped_by_another_driver(lost):
    with lost.attach() as cluster:
        run = cluster.stop_run(only(cluster).run.id)
        assert run.status is Status.INTERRUPTED
        assert "".join(block.text for block in cluster.run("print('usable')")) == "usable\n"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", [RunningHub.kill_proxy, RunningHub.kill_and_restart])
def test_no_report_is_lost_when_proxy_or_hub_restart(tmp_path, fault):
    end, store = tmp_path / "end", RunStore(tmp_path / "runs")
    with run_hub(tmp_path / "state") as hub:
        where = {"hub_url": hub.url, "token": hub.token_for("kay"), "store": store}
        with Cluster.start(2, name="calm", backend="none", **where) as cluster:
            kernels = [kernel.kernel_id for kernel in cluster._core.group.kernels]
            run = cluster.train(CELL.format(end=str(end), last=""), detach=True)
            wait_until(lambda: len(run.dataframe()) >= 40, PATIENCE)
            fault(hub)
            heard = len(run.dataframe())
            wait_until(lambda: len(run.dataframe()) > heard + 100, PATIENCE)
            end.touch()
            run.wait(PATIENCE)
            assert_whole(store, run)
            assert "".join(block.text for block in cluster.run("print(step > 0)")) == "True\n"
            assert [kernel.kernel_id for kernel in cluster._core.group.kernels] == kernels
