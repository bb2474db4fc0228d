"""Dask runs on the ranks of a cluster: its tasks share the processes of the ranks with the cells."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import numpy as np
import psutil
import pytest
from dask import array
from distributed import Client, KilledWorker, Security, wait
from distributed.core import ConnectionPool
from distributed.worker import get_data_from_worker
from farandole import Cluster, Elastic
from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.data.certificate import new_security
from farandole.driver.data.status import DaskStatus
from farandole.exceptions import RankDiedError, RankError, UsageError
from farandole.runs.store import RunStore

from hub.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLD_GIL = "import ctypes, pathlib; pathlib.Path({!r}).touch(); ctypes.PyDLL(None).usleep(1_000_000 * {})"
"""A cell that holds the GIL for some seconds, as a C extension may."""
START_SECONDS = 60
TRAIN = """
import time
import farandole as fd
fd.report(ready=1)
while True:
    time.sleep(0.01)
"""
ELASTIC = """
import os, time, torch
import farandole as fd

state = fd.state(torch.nn.Linear(1, 1), step=0)

@fd.elastic
def loop(state):
    while not os.path.exists({end!r}):
        state.step += 1
        state.commit()
        fd.report(size=fd.size())
        time.sleep(0.02)

loop(state)
"""
BOKEH = ("bokeh", "contourpy", "narwhals", "xyzservices")
"""Bokeh and those of its dependencies that the test environment lacks."""
WITH_PAGES = """
import json, sys
from pathlib import Path
import psutil
from farandole import Cluster
from farandole.runs.store import RunStore
from tests.contract.test_dask import page
store = RunStore(Path(sys.argv[1]))
with Cluster.start(local=True, ranks=1, backend="none", store=store, progress=lambda _: None) as cluster:
    client = cluster.dask()
    info = client.scheduler_info()
    port, [worker] = info["services"]["dashboard"], info["workers"].values()
    pages = {path: page(port, path) for path in ("status", "statics/css/base.css", "proxy/1/h/")}
    pages["of a rank"] = page(worker["services"]["dashboard"], "status")
    sockets = psutil.Process().net_connections()
    hosts = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr.port == port]
    print(json.dumps({"port": port, "link": client.dashboard_link, "pages": pages, "hosts": hosts}))
"""
"""The code of a driver that prints what its dashboard answers."""
SMALL_MEMORY = 800_000_000
"""The memory of a small worker in bytes, of which Python, Dask and numpy need up to 300 MB in a rank."""
CHUNK = 16_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return cluster.dask()


def processes(client: Client) -> set[int]:
    """Return the process ids of all Dask workers, except those that end at this moment."""
    return set(client.run(os.getpid, on_error="ignore").values())


def addresses(client: Client) -> list[str]:
    """Return the addresses of the scheduler and of all Dask workers."""
    return [client.scheduler.address, *client.scheduler_info()["workers"]]


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
        cluster.dask()
        # A further call changes the choice, and one without the argument does not.
        cluster.dask(pause_while_training=True)
        client = cluster.dask()
        run = cluster.train(TRAIN, detach=True)
        wait_until(lambda: len(run.dataframe()) == 1, START_SECONDS)
        with pytest.raises(UsageError, match="is running another cell"):
            cluster.dask(pause_while_training=False)
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


@pytest.mark.parametrize("other", [Security.temporary, new_security])
def test_another_certificate_is_refused(client: Client, other: Callable[[], Security]) -> None:
    """Another user of the network may have one that the same library has made."""
    for address in addresses(client):
        with pytest.raises(OSError, match="certificate does not match"):
            Client(address, security=other(), timeout=2)
        # Without a check of the other side, the connection is refused by the server.
        context = other().get_connection_args("worker")["ssl_context"]
        context.verify_mode = ssl.CERT_NONE
        assert answer(address, context) == b""
    assert client.submit(int, "7", pure=False).result() == 7


def test_a_connection_without_a_certificate_is_refused(client: Client) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for address in addresses(client):
        assert answer(address, context) == b""
    assert client.submit(int, "8", pure=False).result() == 8


def test_a_connection_without_encryption_is_refused(client: Client) -> None:
    for address in addresses(client):
        with pytest.raises(OSError, match="Timed out|closed"):
            Client(address.replace("tls://", "tcp://"), timeout=2)
        # An alert of TLS has 7 bytes and is not encrypted.
        found = answer(address, None)
        assert len(found) <= 7
        assert found[:1] in {b"", b"\x15"}
    assert client.submit(int, "9", pure=False).result() == 9


def answer(address: str, context: ssl.SSLContext | None) -> bytes:
    """Return what a server sends to a program that connects and asks for the data of a Dask worker."""
    host, port = address.removeprefix("tls://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as plain:
        try:
            with plain if context is None else context.wrap_socket(plain) as connection:
                connection.sendall(b"get_data" * 100)
                return connection.recv(1000)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_a_dask_worker_gives_its_data_only_to_the_ranks_and_the_scheduler(client: Client) -> None:
    future = client.submit(lambda: b"secret", pure=False)
    assert future.result() == b"secret"
    [[holder]] = client.who_has(future).values()
    assert asyncio.run(data_of(holder, future.key, client.security))["status"] == "OK"
    with pytest.raises(OSError, match="certificate does not match"):
        asyncio.run(data_of(holder, future.key, Security.temporary()))


async def data_of(address: str, key: str, security: Security) -> dict[str, Any]:
    """Ask a Dask worker for the result of a task, as another Dask worker does."""
    pool = await ConnectionPool(connection_args=security.get_connection_args("worker"), timeout=5)
    try:
        found: dict[str, Any] = await get_data_from_worker(pool, [key], address)
        return found
    finally:
        await pool.close()


def test_what_listens_is_encrypted_or_on_the_loopback_interface(client: Client) -> None:
    encrypted = {int(one.rsplit(":", 1)[1]) for one in addresses(client)}
    found = set()
    for pid in (os.getpid(), *processes(client)):
        listening = [one for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN]
        found |= {one.laddr.port for one in listening}
        assert [one for one in listening if one.laddr.port not in encrypted and one.laddr.ip != "127.0.0.1"] == []
    assert encrypted <= found


def test_the_http_servers_have_no_pages(client: Client) -> None:
    """Without bokeh. Other users of the machine could read them."""
    info = client.scheduler_info()
    ports = [one["services"]["dashboard"] for one in (info, *info["workers"].values())]
    assert len(ports) == 3
    for port in ports:
        for path in ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "health", "proxy/1/h/"):
            with pytest.raises(HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5)


def page(port: int, path: str) -> int:
    """Return the status of the answer of an HTTP server of this machine."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=START_SECONDS) as answer:
            return int(answer.status)
    except HTTPError as exc:
        return exc.code


@pytest.mark.release
def test_with_bokeh_the_dashboard_has_pages_on_the_loopback_interface(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--target", str(packages), *BOKEH], check=True)
    places = os.pathsep.join([str(packages), *sys.path])
    environment = os.environ | {"PYTHONPATH": places, "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}
    command = [sys.executable, "-c", WITH_PAGES, str(tmp_path / "runs")]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(printed.splitlines()[-1])
    assert found["link"] == f"/user/ada/proxy/{found['port']}/status"
    assert found["pages"] == {"status": 200, "statics/css/base.css": 200, "proxy/1/h/": 404, "of a rank": 404}
    assert found["hosts"] == ["127.0.0.1"]


def test_the_end_of_the_cluster_ends_the_engine(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        client = cluster.dask()
        port = int(client.scheduler.address.rsplit(":", 1)[1])
    assert client.status == "closed"
    assert port not in {one.laddr.port for one in psutil.Process().net_connections()}
    assert [one for one in set(threading.enumerate()) - threads if one.name.startswith("farandole")] == []


def test_after_a_client_is_closed_the_next_one_uses_the_same_dask_workers(cluster: Cluster, client: Client) -> None:
    before = addresses(client)
    client.close()
    other = cluster.dask()
    assert other is not client
    assert other.submit(int, "5", pure=False).result(timeout=START_SECONDS) == 5
    assert addresses(other) == before


def test_after_a_shutdown_dask_starts_again(cluster: Cluster, client: Client) -> None:
    before = addresses(client)
    client.shutdown()
    # Cells run without Dask.
    cluster.run("1")
    other = cluster.dask()
    assert other.submit(int, "5", pure=False).result(timeout=START_SECONDS) == 5
    assert len(addresses(other)) == 3
    assert not set(addresses(other)) & set(before)


def test_the_engine_does_not_start_while_a_cell_runs(tmp_path: Path) -> None:
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        run = cluster.train(TRAIN, detach=True)
        with pytest.raises(UsageError, match="is running another cell"):
            cluster.dask()
        cluster.stop_run(run.id)


def test_a_rank_on_which_dask_cannot_start_is_named_and_no_key_is_shown(tmp_path: Path) -> None:
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        cluster.run("import sys; sys.modules['farandole.ranks.data.worker'] = None")
        with pytest.raises(RankError, match=r"starting Dask failed on rank 0 .*Dask is not installed on this") as error:
            cluster.dask()
        assert "PRIVATE KEY" not in str(error.value) + error.value.traceback
        cluster.run("import farandole.ranks.data.engine as engine; engine.Engine.start = lambda *_, **__: 1 / 0")
        with pytest.raises(RankError, match="ZeroDivisionError") as error:
            cluster.dask()
        assert "PRIVATE KEY" not in str(error.value) + error.value.traceback


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=[pytest.mark.release, pytest.mark.timeout(300)])])
def test_a_cell_that_holds_the_gil_loses_no_dask_worker(
    cluster: Cluster, client: Client, tmp_path: Path, seconds: int
) -> None:
    """Meanwhile, the notebook and the other rank wait for the data of its rank."""
    wait(kept := client.map(lambda number: [number] * 10, range(8), pure=False))
    before, holders = addresses(client), client.who_has(kept)
    held = pids(cluster)[0]
    [holder] = [address for address, pid in client.run(os.getpid).items() if pid == held]
    [other] = set(before[1:]) - {holder}
    there = [future for future in kept if holder in holders[future.key]]
    code = HOLD_GIL.format(str(tmp_path / "held"), seconds)
    cell = threading.Thread(target=cluster.run, args=[code], kwargs={"ranks": [0]})
    cell.start()
    wait_until((tmp_path / "held").exists, START_SECONDS)
    began = time.monotonic()
    sums = client.map(sum, there, workers=[other], pure=False)
    assert len(client.gather(there)) == len(client.gather(sums)) >= 1
    # They have waited instead of computing the data again.
    assert time.monotonic() - began > seconds / 2
    cell.join()
    assert addresses(client) == before
    assert all(holder in holders for holders in client.who_has(there).values())


def test_a_frame_larger_than_the_memory_limit_is_written_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEM_LIMIT", str(SMALL_MEMORY))
    with Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        client = cluster.dask()
        [worker] = client.scheduler_info()["workers"].values()
        assert SMALL_MEMORY / 2 < worker["memory_limit"] < SMALL_MEMORY
        count = 1 + int(1.3 * SMALL_MEMORY / CHUNK)
        wait(numbers := array.ones(count * CHUNK // 8, chunks=CHUNK // 8).cumsum(axis=0).persist())
        assert int(numbers[-1].compute()) == count * CHUNK // 8
        wait_until(lambda: sum(one.spilled for one in published(cluster).workers.values()) > 0, START_SECONDS)
        assert int(numbers.max().compute()) == count * CHUNK // 8
        [highest] = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024).values()
        assert highest < SMALL_MEMORY
        folder = Path(worker["local_directory"])
        assert stat.S_IMODE(folder.parents[1].stat().st_mode) == 0o700
    assert not folder.exists()


def test_a_killed_rank_loses_no_task_and_its_successor_takes_part(cluster: Cluster, client: Client) -> None:
    futures = client.map(lambda number: time.sleep(0.1) or number, range(40), pure=False)
    wait(futures[:4], return_when="FIRST_COMPLETED")
    os.kill(min(processes(client)), signal.SIGKILL)
    assert client.gather(futures) == list(range(40))
    found = pids(cluster)  # a cell replaces the rank, unless it has been replaced for the tasks
    assert processes(client) == set(found)


def test_the_loss_of_all_ranks_does_not_stop_the_tasks(cluster: Cluster, client: Client) -> None:
    """The notebook waits for the tasks, so no cell can replace the ranks."""
    before = processes(client)
    futures = client.map(lambda number: time.sleep(0.1) or number, range(40), pure=False)
    wait(futures[:4], return_when="FIRST_COMPLETED")
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert client.gather(futures) == list(range(40))
    wait_until(lambda: len(processes(client)) == 2, START_SECONDS)
    assert not processes(client) & before


@pytest.mark.release
@pytest.mark.timeout(600)
def test_a_task_that_always_ends_its_rank_fails(cluster: Cluster, client: Client) -> None:
    with pytest.raises(KilledWorker):
        client.submit(os._exit, 1, pure=False).result(timeout=500)
    # No tasks are pending, so the lost ranks are restarted with the next cell.
    wait_until(lambda: runs_a_cell(cluster) and len(processes(client)) == 2, START_SECONDS)


def runs_a_cell(cluster: Cluster) -> bool:
    """Run a cell, and return whether it has lost no rank. The ranks may end before the driver notices it."""
    try:
        cluster.run("import os")
    except RankDiedError:
        return False
    return True


@pytest.mark.release
def test_a_rank_that_an_elastic_run_replaces_takes_part_and_waits_for_the_end(tmp_path: Path) -> None:
    end = tmp_path / "end"
    with Cluster.start(local=True, ranks=2, backend="torch", store=RunStore(tmp_path / "runs")) as cluster:
        client = cluster.dask(pause_while_training=True)
        run = cluster.train(ELASTIC.format(end=str(end)), elastic=Elastic(), detach=True)
        wait_until(lambda: not run.dataframe().empty, START_SECONDS)
        before = processes(client)
        os.kill(max(before), signal.SIGKILL)
        wait_until(lambda: len(processes(client) - before) == 1, START_SECONDS)
        new = {address for address, pid in client.run(os.getpid).items() if pid not in before}
        future = client.submit(os.getpid, workers=list(new), pure=False)
        with pytest.raises(TimeoutError):
            future.result(timeout=1)
        end.touch()
        assert future.result(timeout=START_SECONDS) not in before
        run.wait()
        assert run.status == "finished"


def test_results_are_numpy_arrays_without_a_copy_in_cells(cluster: Cluster, client: Client) -> None:
    """A task leaves an array in a module, and a cell changes it in place."""
    client.run(lambda: setattr(np, "of_a_task", np.zeros(3)))
    cluster.run("import numpy as np; np.of_a_task += 1")
    assert all(found.tolist() == [1, 1, 1] for found in client.run(lambda: np.of_a_task).values())
