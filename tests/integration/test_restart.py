"""Tests that a run outlives each way in which a notebook's kernel can end, and that an interrupt still stops a run."""

import pytest
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.clients.kernel import CellError, RemoteKernel
from tests.lost import PATIENCE, TOGETHER, assert_whole

START = "%load_ext farandole\n%cluster start --workers 2 --backend torch"
ATTACH = "%load_ext farandole\n%cluster attach"
DIE = "import os, threading\nthreading.Timer(1, {}).start()"
DEATHS = ("os._exit, [1]", "os.kill, [os.getpid(), 9]")


@pytest.fixture(scope="module")
def kernel(hub):
    """The kernel of a notebook that leads two ranks."""
    address, token = hub.start_notebook("meitner"), hub.browser("meitner").make_token()
    with RemoteKernel(address, token, "long.ipynb") as kernel:
        kernel.execute(START, deadline=2 * PATIENCE)
        yield kernel
        kernel.execute("%cluster stop", deadline=PATIENCE)


@pytest.fixture
def store(hub):
    return RunStore(hub.state / "homes" / "meitner" / "farandole" / "runs")


def begin(kernel, store, end):
    """Begin a run that continues until the file ``end`` exists, and return its cell's request and its code."""
    code = f"%%distributed_train --name {end.name}\n{TOGETHER.format(end=str(end), last='')}"
    request = kernel.begin(code)
    wait_until(lambda: reports(store, end.name) >= 40, PATIENCE)
    return request, code


def reports(store, name):
    """Return how many reports the run has in its files."""
    return sum(len(store.load_run(info.id)) for info in store.list() if info.name == name)


def test_a_run_outlives_restart_exit_and_kill_of_its_kernel(kernel, store, tmp_path):
    end = tmp_path / "outlives"
    begin(kernel, store, end)
    kernel.restart()
    assert_continues(kernel, store)
    for death in DEATHS:
        kernel.execute(DIE.format(death), deadline=PATIENCE)
        kernel.begin("%runs wait outlives")
        wait_until(lambda: store.list()[0].status is Status.LOST, PATIENCE)
        kernel.reconnect()
        assert_continues(kernel, store)
    kernel.begin("%runs wait outlives")
    kernel.restart()
    assert_continues(kernel, store)
    end.touch()
    kernel.execute("%runs wait outlives", deadline=PATIENCE)
    run = store.load("outlives")
    assert run.status is Status.FINISHED
    assert_whole(store, run)


def assert_continues(kernel, store):
    """Check that the run has not ended with its kernel, and that a new kernel can attach to it."""
    [lost] = store.list()
    assert lost.status is Status.LOST
    received = len(store.load_run(lost.id))
    kernel.execute(ATTACH, deadline=PATIENCE)
    [found] = store.list()
    assert (found.id, found.status) == (lost.id, Status.RUNNING)
    wait_until(lambda: len(store.load_run(lost.id)) > received + 40, PATIENCE)


def test_an_interrupt_by_the_user_stops_the_run_within_5_seconds(kernel, store, tmp_path):
    request, code = begin(kernel, store, tmp_path / "stops")
    kernel.interrupt()
    wait_until(lambda: store.load("stops").status is Status.INTERRUPTED, 30)
    with pytest.raises(CellError, match="KeyboardInterrupt"):
        kernel.finish(request, code, deadline=PATIENCE)
