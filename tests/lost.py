"""Runs whose drivers have been killed, for tests of how such runs continue or end."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

from farandole import Cluster
from farandole.exceptions import NoClusterError
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.cells import elastic

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
TOGETHER = CELL.replace(
    "while not pathlib.Path({end!r}).exists():",
    """from farandole.ranks.world.collectives import gather_bytes
while b"end" not in gather_bytes(b"end" if pathlib.Path({end!r}).exists() else b"on"):""",
)
"""Like `CELL`, but each step includes a collective of the backend."""
DRIVER = """
import json, sys
from pathlib import Path
from farandole import Cluster, Elastic
from farandole.runs.store import RunStore
task = json.loads(sys.stdin.readline())
where = {"hub_url": task["hub"], "token": task["token"], "store": RunStore(Path(task["store"]))}
elastic = None if task["elastic"] is None else Elastic(**task["elastic"])
cluster = Cluster.start(2, name=task["cluster"], backend=task["backend"], **where)
cluster.train(task["code"], name="long", elastic=elastic, config=task["config"])
"""
PATIENCE = 60

EPOCHS = 20
FAULT = """time.sleep(0.01 if (marks / "hurry").exists() else 0.2)
            if fd.rank() == 1 and (marks / "kill").exists():
                (marks / "kill").unlink()
                os.kill(os.getpid(), signal.SIGKILL)"""
"""The beginning of each step of an elastic cell. Steps are slow until the file ``hurry`` exists, and rank 1 kills
itself when the file ``kill`` exists.
"""


def steps_on_disk(store):
    """Return the number of reports in each rank's file."""
    return [len(path.read_text().splitlines()) for path in sorted(store.folder.glob("*/metrics/*.jsonl"))]


def all_have(store, least):
    return lambda: len(steps_on_disk(store)) == 2 and min(steps_on_disk(store)) >= least


def assert_whole(store, run):
    """Check that the run's files contain all reports and log lines of both ranks, each once and in order.

    Also check that ``run`` has the same number of reports.
    """
    frame = store.load_run(run.id)
    for rank, count in run.results.items():
        assert frame[frame["rank"] == rank]["step"].to_list() == list(range(count))
        assert (run.folder / "logs" / f"rank-{rank}.log").read_text().splitlines() == [
            f"line {n}" for n in range(count)
        ]
    assert len(frame) == len(run.dataframe()) == sum(run.results.values())
    assert sorted(run.results) == [0, 1]


def assert_none_left_out(store, run, epochs=EPOCHS):
    """Check that an elastic run trained on each sample once per epoch, and that no report is missing or repeated."""
    assert run.status is Status.FINISHED
    for result in run.results.values():
        assert Counter(result["seen"]) == dict.fromkeys(range(248), epochs)
    live, kept = run.dataframe(), store.load_run(run.id)
    assert len(live) == len(kept) == len(kept.drop_duplicates(["rank", "time"]))
    # A step is reported after its commit. If a rank leaves for a larger world at that commit, its report is missing.
    parted = {int(step) for notice in run.notices for step in re.findall(r"from step (\d+)", notice)}
    assert set(range(1, 31 * epochs + 1)) - set(kept[kept["rank"] == 0]["step"]) <= parted


class Lost:
    """A run whose driver was killed."""

    def __init__(self, hub, folder, name, backend="none", last=""):
        self.end = folder / "end"
        self._lose(hub, folder, name, backend, CELL.format(end=str(self.end), last=last))

    def _lose(self, hub, folder, name, backend, code, options=None, config=None):
        self.store = RunStore(folder / "runs")
        self.where = {"hub_url": hub.url, "token": hub.token_for("lost"), "progress": print}
        self.name = name
        task = {"hub": hub.url, "token": self.where["token"], "store": str(self.store.folder), "code": code}
        task |= {"cluster": name, "backend": backend, "elastic": options, "config": config}
        self._driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, text=True)
        self._driver.stdin.write(json.dumps(task) + "\n")
        self._driver.stdin.flush()
        try:
            wait_until(all_have(self.store, 20), 2 * PATIENCE)
        finally:
            self._driver.send_signal(signal.SIGKILL)
            self._driver.wait()
            self._driver.stdin.close()
        assert self.store.list()[0].status is Status.LOST

    def wait_for_the_end_of(self, hub, rank):
        """Wait until a rank's worker has recorded the rank's end, because a driver cannot attach to a dying kernel."""
        wait_until(lambda: self.record(hub, rank)["ended"], PATIENCE)

    def record(self, hub, rank):
        """Return the state of this run's journal, as a rank's worker describes it."""
        path = f"/user/lost/{self.name}-w{rank}/farandole/records"
        return hub.api(self.where["token"], "GET", path).json()["records"][0]

    def attach(self, store=None):
        return Cluster.attach(self.name, store=store or self.store, **self.where)

    def stop(self):
        # If the test has succeeded, it has already stopped the cluster.
        with suppress(NoClusterError):
            Cluster.stop_named(self.name, **self.where)


class LostElastic(Lost):
    """An elastic run whose driver was killed. It trains slowly until `hurry` is called."""

    def __init__(self, hub, folder, name, backend, *, before="", config=None):
        self._folder = folder
        code = elastic(folder, epochs=EPOCHS, fault=FAULT, before=before)
        self._lose(hub, folder, name, backend, code, {"lr_rule": "linear"}, config)

    def kill_rank(self):
        """Make rank 1 kill itself with SIGKILL at its next step."""
        (self._folder / "kill").touch()

    def hurry(self):
        (self._folder / "hurry").touch()
