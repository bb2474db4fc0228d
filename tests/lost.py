"""A run whose driver is killed, for tests of what becomes of it."""

import json
import signal
import subprocess
import sys
from contextlib import suppress

from farandole import Cluster
from farandole.driver.store import RunStore
from farandole.exceptions import NoClusterError
from farandole.protocol import Status

from hub.process import wait_until

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
    """from farandole.ranks.collectives import gather_bytes
while b"end" not in gather_bytes(b"end" if pathlib.Path({end!r}).exists() else b"on"):""",
)
"""The same, over the backend: each step is a collective."""
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
