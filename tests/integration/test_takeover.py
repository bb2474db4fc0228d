"""An elastic run whose driver was killed, or whose proxy, goes on: ranks are replaced and no sample is left out."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest
from farandole import Cluster, Elastic
from farandole.driver.store import RunStore
from farandole.protocol import Status

from hub.process import wait_until
from tests.cells import elastic
from tests.hub import run_hub

DRIVER = """
import json, sys
from pathlib import Path
from farandole import Cluster, Elastic
from farandole.driver.store import RunStore
told = json.loads(sys.stdin.readline())
where = {"hub_url": told["hub"], "token": told["token"], "store": RunStore(Path(told["store"]))}
cluster = Cluster.start(2, name=told["cluster"], backend=told["backend"], **where)
cluster.train(told["code"], elastic=Elastic(lr_rule="linear"))
"""
PATIENCE = 120
EPOCHS = 40
FAULT = """time.sleep(0.01 if (marks / "hurry").exists() else 0.1)
            if fd.rank() == 1 and (marks / "kill").exists():
                (marks / "kill").unlink()
                os.kill(os.getpid(), signal.SIGKILL)"""


def steps(store):
    return min([len(path.read_text().splitlines()) for path in store.folder.glob("*/metrics/*.jsonl")], default=0)


def whole(store, run, epochs=EPOCHS):
    assert run.status is Status.FINISHED
    for result in run.results.values():
        assert Counter(result["seen"]) == dict.fromkeys(range(248), epochs)
    told, kept = run.dataframe(), store.load_run(run.id)
    assert len(told) == len(kept) == len(kept.drop_duplicates(["rank", "time"]))
    # The cell reports after its commits, where ranks part for a world with more of them.
    parted = {int(step) for notice in run.notices for step in re.findall(r"from step (\d+)", notice)}
    assert set(range(1, 31 * epochs + 1)) - set(kept[kept["rank"] == 0]["step"]) <= parted


class Led:
    """A driver of its own process that leads an elastic run."""

    def __init__(self, hub, folder, backend):
        self.store = RunStore(folder / "runs")
        self.where = {"hub_url": hub.url, "token": hub.token_for("led"), "store": self.store}
        told = {"hub": hub.url, "token": self.where["token"], "store": str(self.store.folder)}
        told |= {"cluster": f"t-{backend}", "backend": backend, "code": elastic(folder, epochs=EPOCHS, fault=FAULT)}
        self._driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, text=True)
        self._driver.stdin.write(json.dumps(told) + "\n")
        self._driver.stdin.flush()

    def kill(self):
        self._driver.send_signal(signal.SIGKILL)
        self._driver.wait()
        self._driver.stdin.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("backend", "alone"), [("horovod", True), ("torch", False)])
def test_another_driver_leads_a_run_on(hub, tmp_path, backend, alone):
    led = Led(hub, tmp_path, backend)
    try:
        wait_until(lambda: steps(led.store) >= 20, PATIENCE)
    finally:
        led.kill()
    if alone:
        (tmp_path / "kill").touch()
        # Only once its worker has seen the end: a dying kernel cannot be attached to.
        path = f"/user/led/t-{backend}-w1/farandole/records"
        wait_until(lambda: hub.api(led.where["token"], "GET", path).json()["records"][0]["ended"], PATIENCE)
    with Cluster.attach(f"t-{backend}", **led.where) as cluster:
        [background] = cluster.background.values()
        run = background.run
        if not alone:
            (tmp_path / "kill").touch()
        wait_until(lambda: any("joined: going on with 2 ranks" in notice for notice in run.notices), PATIENCE)
        (tmp_path / "hurry").touch()
        run.wait(PATIENCE)
        whole(led.store, run)
        for told in (
            "another driver leads the run now",
            f"rank 1 (worker t-{backend}-w1) was lost: ",
        ):
            assert any(told in notice for notice in run.notices), run.notices


@pytest.mark.timeout(300)
def test_a_proxy_that_is_restarted_costs_no_rank(tmp_path):
    with run_hub(tmp_path / "state") as hub:
        store = RunStore(tmp_path / "runs")
        where = {"hub_url": hub.url, "token": hub.token_for("kay"), "store": store}
        with Cluster.start(2, name="calm", backend="torch", **where) as cluster:
            code = elastic(tmp_path, epochs=EPOCHS, fault=FAULT)
            run = cluster.train(code, elastic=Elastic(), detach=True)
            wait_until(lambda: len(run.dataframe()) >= 40, PATIENCE)
            kernels = [kernel.kernel_id for kernel in cluster._core.group.kernels]
            hub.kill_proxy()
            heard = len(run.dataframe())
            wait_until(lambda: len(run.dataframe()) > heard + 100, PATIENCE)
            (tmp_path / "hurry").touch()
            run.wait(PATIENCE)
            whole(store, run)
            assert not any("was lost" in notice or "going on with" in notice for notice in run.notices)
            assert [kernel.kernel_id for kernel in cluster._core.group.kernels] == kernels
