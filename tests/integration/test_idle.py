"""Tests on a real hub that idle servers stop even if clients are connected, and that busy servers do not stop."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
import requests
from farandole import Cluster, Endpoint
from farandole.driver.recovery.orphaned_runs import complete
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import HubProcessError, wait_until
from tests.cells import SUM, text
from tests.clients.kernel import RemoteKernel
from tests.hub import run_hub
from tests.integration.test_serving import APP
from tests.lost import EPOCHS, Lost, LostElastic, assert_none_left_out, assert_whole, steps_on_disk

LIMIT = 30.0
"""Idle limit in seconds. Even on a busy machine, no server may reach this limit while another server is starting."""
SILENCE = 1.5 * LIMIT
DEADLINE = 150.0


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub that stops servers after they have been idle for half a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_IDLE_MINUTES", str(LIMIT / 60))
        patch.setenv("FARANDOLE_IDLE_SERVER_MINUTES", str(LIMIT / 60))
        patch.setenv("FARANDOLE_IDLE_ENDPOINT_MINUTES", str(LIMIT / 60))
        with run_hub(tmp_path_factory.mktemp("idle")) as running:
            yield running


@pytest.fixture
def flag(tmp_path):
    """The file for which `silent` waits. The file is created after the test at the latest, so that all cells end."""
    path = tmp_path / "flag"
    yield path
    path.touch()


def silent(flag):
    """Return the code of a cell that runs until the file exists, and sends no messages while it is running."""
    return f"import time, pathlib\nwhile not pathlib.Path({str(flag)!r}).exists(): time.sleep(0.05)\nkept = 1"


def servers(hub, user, token):
    return set(hub.api(token, "GET", f"/hub/api/users/{user}").json()["servers"])


def lead(hub, user, folder, workers, said, backend="none"):
    access = {"hub_url": hub.url, "token": hub.token_for(user), "store": RunStore(folder)}
    return Cluster.start(workers, name="main", backend=backend, progress=said.append, **access)


def stopped(said):
    """Return the workers whose stop has been reported to the notebook."""
    return sorted(line.split()[1] for line in said if "was stopped: it had been idle for" in line)


@pytest.mark.parametrize("backend", ["horovod", pytest.param("torch", marks=pytest.mark.release)])
def test_an_idle_worker_stops_a_busy_one_stays_and_the_next_cell_replaces_it(hub, tmp_path, flag, backend):
    user, said = f"ida-{backend}", []
    token = hub.token_for(user)
    with ThreadPoolExecutor() as pool, lead(hub, user, tmp_path, 2, said, backend) as cluster:
        cell = pool.submit(cluster.run, silent(flag), ranks=[0])
        begun = time.monotonic()
        wait_until(lambda: servers(hub, user, token) == {"main-w0"}, DEADLINE)
        # The notebook is notified immediately, without running another cell.
        wait_until(lambda: stopped(said) == ["main-w1"], DEADLINE)
        wait_until(lambda: time.monotonic() - begun > SILENCE, DEADLINE)
        assert servers(hub, user, token) == {"main-w0"}
        states = [row[-1] for row in cluster.status().rows]
        assert states[0] == "busy"
        assert states[1].startswith("stopped: it had been idle for")
        flag.touch()
        cell.result(timeout=DEADLINE)
        # The rank that was busy keeps its variables, and the other rank is new.
        assert text(cluster.run("import farandole as fd\nprint(fd.rank(), 'kept' in globals())")) == "0 True\n1 False\n"
        assert text(cluster.run(SUM[backend])) == "2\n"
        assert [line for line in said if "starting it again" in line and "main-w1 had been idle for" in line], said
        assert all("stopped at" in row[-1] for row in cluster.status().rows)
        # After a longer pause, both workers have stopped. The next cell starts them again.
        said.clear()
        wait_until(lambda: servers(hub, user, token) == set(), DEADLINE)
        wait_until(lambda: stopped(said) == ["main-w0", "main-w1"], DEADLINE)
        said.clear()
        assert text(cluster.run(SUM[backend])) == "2\n"
        reasons = [line.split()[1] for line in said if "this hub stops workers after 0.5" in line]
        assert reasons == ["main-w0", "main-w1"], said


def test_workers_without_a_driver_stay_for_the_run_and_save_its_end_when_they_stop(hub, tmp_path):
    lost = Lost(hub, tmp_path, "alone")
    begun, workers = time.monotonic(), {"alone-w0", "alone-w1"}
    try:
        wait_until(lambda: time.monotonic() - begun > 2 * LIMIT, DEADLINE)
        assert servers(hub, "lost", lost.where["token"]) == workers
        assert complete(lost.store) == []
        lost.end.touch()
        wait_until(lambda: not servers(hub, "lost", lost.where["token"]) & workers, DEADLINE)
        [run] = complete(lost.store)
        assert run.status is Status.FINISHED
        assert_whole(lost.store, run)
    finally:
        lost.stop()


@pytest.mark.timeout(400)
def test_a_rank_that_waits_for_a_driver_stays_until_one_takes_over(hub, tmp_path):
    lost = LostElastic(hub, tmp_path, "waiting", "torch")
    known, count = steps_on_disk(lost.store)[1], lost.record(hub, 1)["count"]
    try:
        wait_until(lambda: lost.record(hub, 1)["count"] > count + 20, DEADLINE)
        lost.kill_rank()
        lost.wait_for_the_end_of(hub, 1)
        begun, workers = time.monotonic(), {"waiting-w0", "waiting-w1"}
        # The remaining rank cannot train alone, so it waits for a driver that replaces the lost rank.
        wait_until(lambda: servers(hub, "lost", lost.where["token"]) & workers == {"waiting-w0"}, DEADLINE)
        wait_until(lambda: time.monotonic() - begun > 2 * LIMIT, DEADLINE)
        assert servers(hub, "lost", lost.where["token"]) & workers == {"waiting-w0"}
        with lost.attach() as cluster:
            [background] = cluster.background.values()
            run = background.run
            wait_until(lambda: any("continuing with 1 rank " in notice for notice in run.notices), DEADLINE)
            assert any(
                "worker waiting-w1 is gone: `%cluster scale 2` replaces lost workers" in text for text in run.notices
            )
            cluster.scale(2)
            wait_until(lambda: any("joined: continuing with 2 ranks" in notice for notice in run.notices), DEADLINE)
            lost.hurry()
            run.wait(DEADLINE)
            assert_none_left_out(lost.store, run)
        steps = lost.store.load_run(run.id).query("rank == 1")["step"].to_list()
        # The run contains the last records of the stopped worker, followed by the records of the new worker.
        before = sum(number == step for number, step in enumerate(steps, 1))
        assert known < before < len(steps)
        assert steps == [*range(1, before + 1), *range(steps[before], 31 * EPOCHS + 1)]
    finally:
        lost.stop()


@contextmanager
def open_page(hub, address, token):
    """Open a page that shows a notebook with an idle kernel and polls the server, as JupyterLab does."""
    closed = threading.Event()

    def ask():
        path = urlsplit(address).path
        while not closed.wait(1):
            for what in ("kernels", "sessions", "contents"):
                # A server may not respond while it is stopping, so errors are ignored and requests repeated.
                with suppress(requests.RequestException):
                    hub.api(token, "GET", f"{path}/api/{what}")

    asking = threading.Thread(target=ask)
    with RemoteKernel(address, token, "page.ipynb") as kernel:
        asking.start()
        try:
            yield kernel
        finally:
            closed.set()
            asking.join()


def test_an_idle_notebook_server_stops_with_its_workers_unless_one_is_busy(hub, tmp_path, flag):
    tokens = {user: hub.browser(user).make_token() for user in ("idle", "cell", "worker")}

    def names(user):
        return servers(hub, user, tokens[user])

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        stack.callback(flag.touch)
        # The notebook server of this user is idle, but its worker is busy with a run, for example after the notebook's
        # kernel was restarted.
        hub.start_notebook("worker")
        busy = stack.enter_context(lead(hub, "worker", tmp_path / "worker", 1, []))
        cells = [pool.submit(busy.train, silent(flag))]
        kernel = stack.enter_context(open_page(hub, hub.start_notebook("cell"), tokens["cell"]))
        cells.append(pool.submit(kernel.execute, silent(flag), deadline=2 * DEADLINE))
        begun = time.monotonic()
        address = hub.start_notebook("idle")
        stack.enter_context(open_page(hub, address, tokens["idle"]))
        stack.callback(lead(hub, "idle", tmp_path / "idle", 1, []).close)

        wait_until(lambda: names("idle") == set(), DEADLINE)
        wait_until(lambda: time.monotonic() - begun > SILENCE, DEADLINE)
        assert (names("cell"), names("worker")) == ({""}, {"", "main-w0"})
        flag.touch()
        for cell in cells:
            cell.result(timeout=DEADLINE)
        # Servers that were busy also stop once they have been idle for long enough.
        wait_until(lambda: names("cell") == names("worker") == set(), DEADLINE)


def test_an_endpoint_without_requests_stops_and_one_with_requests_stays(hub, tmp_path):
    token = hub.token_for("una")
    script = tmp_path / "app.py"
    script.write_text(APP)

    def start(name):
        Endpoint.start(command=["python", str(script)], name=name, progress=len, hub_url=hub.url, token=token)

    with ThreadPoolExecutor() as pool:
        start("called")
        starting = pool.submit(start, "idle")

        def only_the_called_one_is_left():
            assert hub.api(token, "GET", "/user/una/serve-called/").status_code == 200
            return starting.done() and servers(hub, "una", token) == {"serve-called"}

        # The endpoint that is called has started first, so it would stop first if its requests did not count.
        wait_until(only_the_called_one_is_left, DEADLINE)
        starting.result()
    Endpoint("called", hub_url=hub.url, token=token).stop()


@pytest.mark.parametrize("minutes", ["soon", "-1", "inf"])
def test_a_bad_idle_time_stops_the_hub_with_the_key(tmp_path, monkeypatch, minutes):
    monkeypatch.setenv("FARANDOLE_IDLE_MINUTES", minutes)
    with pytest.raises(HubProcessError, match="FARANDOLE_IDLE_MINUTES is .* a number of minutes"), run_hub(tmp_path):
        pass
