"""A laptop leads a cluster over a network with a long way, and loses its network during a run or a copy."""

import os
import subprocess
import time

import pytest
from farandole.files.pieces import PART
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
COPIED_BYTES = 100 * 2**20
COPY = """
import sys
from farandole import Cluster

with Cluster.start(1, name="far", backend="none", hub_url=sys.argv[1]) as cluster:
    print(cluster.put(sys.argv[2], sys.argv[3]))
    print(cluster.get(sys.argv[3], sys.argv[4]))
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


@pytest.mark.release
@pytest.mark.timeout(420)
def test_a_copy_waits_while_the_laptop_has_no_network(hub, tmp_path):
    data, there, back = (tmp_path / name for name in ("data", "there", "back"))
    data.mkdir()
    (data / "large").write_bytes(os.urandom(COPIED_BYTES))
    with FarLaptop(hub.url, tmp_path) as laptop:
        laptop.log_in(hub.token_for("lovelace"))
        folders = [str(folder) for folder in (data, there, back)]
        leading = laptop.python("-c", COPY, hub.url, *folders, stdout=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: any(there.glob(f"*{PART}")), 120)
            laptop.cut()
            time.sleep(CUT_SECONDS)
            assert not (there / "large").exists()
            laptop.join()
            said, _ = leading.communicate(timeout=180)
        finally:
            leading.kill()
            leading.wait()
    assert said.count("1 file, 100 MiB: 1 file, 100 MiB sent") == 2, said
    for folder in (there, back):
        assert [path.name for path in folder.iterdir()] == ["large"]
        assert (folder / "large").read_bytes() == (data / "large").read_bytes()
