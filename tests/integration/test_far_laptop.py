"""A laptop leads a cluster over a network with a long way, and loses its network during a run."""

import subprocess
import time

import pytest
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.far_laptop import FarLaptop
from tests.lost import all_have, assert_whole

STEPS = 150
CUT_SECONDS = 60
LEAD = f"""
import sys
from farandole import Cluster

cell = '''
import time
import farandole as fd

for step in range({STEPS}):
    print("line", step)
    fd.report(step=step, value=step * 0.5)
    time.sleep(0.2)
fd.result({STEPS})
'''
with Cluster.start(2, name="far", backend="none", hub_url=sys.argv[1]) as cluster:
    print("run", cluster.train(cell, name="far").status.value)
"""


@pytest.mark.release
@pytest.mark.timeout(420)
def test_a_run_that_ends_while_the_laptop_has_no_network_is_kept_there_in_full(hub, tmp_path):
    store = RunStore(tmp_path / "runs")
    with FarLaptop(hub.url, tmp_path) as laptop:
        laptop.log_in(hub.token_for("lovelace"))
        leading = laptop.python("-c", LEAD, hub.url, stdout=subprocess.PIPE, text=True)
        try:
            wait_until(all_have(store, 20), 120)
            laptop.cut()
            time.sleep(CUT_SECONDS)
            assert store.list()[0].status is Status.RUNNING
            laptop.join()
            said, _ = leading.communicate(timeout=180)
        finally:
            leading.kill()
            leading.wait()
    assert "run finished" in said
    run = store.load(store.list()[0].id)
    assert run.results == {0: STEPS, 1: STEPS}
    assert_whole(store, run)
