"""Dask runs on the ranks of a cluster: its tasks share the processes of the ranks with the cells."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from distributed import Client, Security, wait
from farandole import Cluster
from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.data.status import DaskStatus
from farandole.exceptions import UsageError
from farandole.runs.store import RunStore

from hub.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD_GIL = "import ctypes; ctypes.PyDLL(None).usleep(1_000_000 * {})"
"""A cell that holds the GIL for some seconds, as a C extension may."""
START_SECONDS = 60
TRAIN = """
import time
import farandole as fd
fd.report(ready=1)
while True:
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return cluster.dask()


def processes(client: Client) -> set[int]:
    """Return the process ids of all Dask workers."""
    return set(client.run(os.getpid).values())


def pids(cluster: Cluster) -> list[int]:
    """Return the process id of each rank."""
    cluster.run("import os\npid = os.getpid()")
    return [found["pid"] for _, found in sorted(cluster.pull("pid").items())]


def published(cluster: Cluster) -> DaskStatus:
    """Return what the driver tells other processes about Dask."""
    [driver] = driver_statuses(cluster._runner.store.folder)
    return driver.dask or DaskStatus(tasks=0, done=0, failed=0, workers={})


def pauses(cluster: Cluster) -> set[str | None]:
    return {worker.paused for worker in published(cluster).workers.values()}


def test_tasks_run_in_the_processes_of_the_ranks(cluster: Cluster, client: Client) -> None:
    assert processes(client) == set(pids(cluster))
    assert sum(client.gather(client.map(lambda number: number**2, range(100)))) == sum(n**2 for n in range(100))
    assert cluster.dask() is client


def test_a_cell_and_a_task_have_the_same_objects(cluster: Cluster, client: Client) -> None:
    cluster.run("shared = {'kept': True}")
    code = "import sys\nsys.modules['__main__'].shared['seen'] = True"
    client.run(exec, code)
    cluster.run("assert shared == {'kept': True, 'seen': True}")


def test_tasks_wait_while_a_training_cell_runs_if_the_user_says_so(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        client = cluster.dask(pause_while_training=True)
        run = cluster.train(TRAIN, detach=True)
        wait_until(lambda: len(run.dataframe()) == 1, START_SECONDS)
        future = client.submit(done.touch)
        with pytest.raises(TimeoutError):
            future.result(timeout=1)
        assert not done.exists()
        wait_until(lambda: pauses(cluster) == {"training"}, START_SECONDS)
        cluster.stop_run(run.id)
        future.result(timeout=START_SECONDS)
        assert done.exists()
        wait_until(lambda: pauses(cluster) == {None}, START_SECONDS)


def test_other_processes_see_the_tasks_and_their_results(cluster: Cluster, client: Client) -> None:
    kept = client.map(lambda number: bytes([number]) * 1_000_000, range(20), pure=False)
    wait_until(lambda: sum(one.memory for one in published(cluster).workers.values()) >= 20_000_000, START_SECONDS)
    status = published(cluster)
    assert list(status.workers) == list(cluster._core.workers)
    assert (status.done, status.failed) == (status.tasks, 0)
    assert sum(one.done for one in status.workers.values()) >= status.done >= len(kept)
    failed = client.submit(divmod, 1, 0, pure=False)
    wait_until(lambda: published(cluster).failed == 1, START_SECONDS)
    assert failed.status == "error"


def test_other_programs_cannot_connect(client: Client) -> None:
    """The scheduler and each Dask worker refuse another certificate, no certificate, and no encryption."""
    for address in (client.scheduler.address, *client.scheduler_info()["workers"]):
        with pytest.raises(OSError, match="certificate does not match"):
            Client(address, security=Security.temporary(), timeout=2)
        with pytest.raises(OSError, match="Timed out|closed"):
            Client(address.replace("tls://", "tcp://"), timeout=2)
        host, port = address.removeprefix("tls://").split(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # With TLS 1.3, the server refuses a client without a certificate after the handshake.
        with (
            socket.create_connection((host, int(port)), timeout=5) as plain,
            context.wrap_socket(plain) as encrypted,
            pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        ):
            encrypted.read()
    assert client.submit(int, "7", pure=False).result() == 7


def test_what_listens_is_encrypted_or_on_the_loopback_interface(client: Client) -> None:
    encrypted = {int(one.rsplit(":", 1)[1]) for one in (client.scheduler.address, *client.scheduler_info()["workers"])}
    found = set()
    for pid in (os.getpid(), *processes(client)):
        listening = [one for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN]
        found |= {one.laddr.port for one in listening}
        assert [one for one in listening if one.laddr.port not in encrypted and one.laddr.ip != "127.0.0.1"] == []
    assert encrypted <= found


def test_the_end_of_the_cluster_ends_the_engine(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        client = cluster.dask()
        port = int(client.scheduler.address.rsplit(":", 1)[1])
    assert client.status == "closed"
    assert port not in {one.laddr.port for one in psutil.Process().net_connections()}
    assert [one for one in set(threading.enumerate()) - threads if one.name.startswith("farandole")] == []


def test_a_second_driver_starts_an_engine_of_its_own(cluster: Cluster, client: Client) -> None:
    """As after a restart of the kernel: the Dask workers of the former scheduler end."""
    client.close()
    other = cluster.dask()
    assert other is not client
    assert other.submit(int, "5", pure=False).result(timeout=START_SECONDS) == 5
    assert len(other.scheduler_info()["workers"]) == 2


def test_the_engine_does_not_start_while_a_cell_runs(tmp_path: Path) -> None:
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        run = cluster.train(TRAIN, detach=True)
        with pytest.raises(UsageError, match="is running another cell"):
            cluster.dask()
        cluster.stop_run(run.id)


@pytest.mark.release
@pytest.mark.timeout(300)
def test_a_cell_that_holds_the_gil_for_a_minute_loses_no_dask_worker(cluster: Cluster, client: Client) -> None:
    kept = client.map(lambda number: [number] * 10, range(8), pure=False)
    wait(kept)
    before = set(client.scheduler_info()["workers"])
    cluster.run(HOLD_GIL.format(60))
    assert client.gather(kept) == [[number] * 10 for number in range(8)]
    assert set(client.scheduler_info()["workers"]) == before


def test_a_killed_rank_loses_no_task_and_its_successor_takes_part(cluster: Cluster, client: Client) -> None:
    futures = client.map(lambda number: time.sleep(0.1) or number, range(40), pure=False)
    wait(futures[:4], return_when="FIRST_COMPLETED")
    os.kill(min(processes(client)), signal.SIGKILL)
    assert client.gather(futures) == list(range(40))
    found = pids(cluster)  # a cell replaces the rank
    assert processes(client) == set(found)
