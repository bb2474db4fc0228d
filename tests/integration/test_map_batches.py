"""`Cluster.map_batches` on the workers of a real hub, whose number changes during the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import RemoteKernel

if TYPE_CHECKING:
    from tests.hub import RunningHub

USER = "mary"
SECONDS = 120.0
START = """
from farandole import Cluster
cluster = Cluster.start(2, backend="none")
"""
JOB = """
import os, threading, time
from pathlib import Path

pids = Path("pids").absolute()
pids.mkdir()

def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)

def slow(batch):
    (pids / str(os.getpid())).touch()
    time.sleep(0.05)
    if batch["number"][0] >= 1000:
        wait_until(lambda: len(list(pids.iterdir())) == 3)
    return {"number": batch["number"]}

def scale():
    wait_until(lambda: len(list(Path("out").glob("part-*"))) >= 5)
    cluster.scale(3)
    wait_until(lambda: len(list(pids.iterdir())) == 3)
    cluster.scale(1)

scaling = threading.Thread(target=scale)
scaling.start()
output = cluster.map_batches(slow, [{"number": n} for n in range(3000)], "out", batch_size=10, part_rows=20)
scaling.join()
print(output.table()["number"].to_pylist() == list(range(3000)), len(list(pids.iterdir())), output.run.status.value)
"""


@pytest.mark.release
def test_the_number_of_workers_may_change_during_a_job(hub: RunningHub) -> None:
    address = hub.start_notebook(USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), "batches.ipynb") as kernel:
        kernel.execute(START, deadline=SECONDS)
        try:
            assert "True 3 finished" in kernel.execute(JOB, deadline=SECONDS)
        finally:
            kernel.execute("cluster.stop()", deadline=SECONDS)
