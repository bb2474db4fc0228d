"""Tests for clusters on a real hub: start, scale, attach and stop, many reports, and two users at the same time."""

import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from farandole import Cluster
from farandole.exceptions import ClusterExistsError, NoClusterError, RankDiedError, UsageError
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import SUM, text, train


def access(hub, user, folder):
    return {"hub_url": hub.url, "token": hub.token_for(user), "store": RunStore(folder)}


@pytest.fixture(scope="module")
def where(hub, tmp_path_factory):
    return access(hub, "cleo", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def cluster(where):
    with Cluster.start(2, name="one", **where) as cluster:
        yield cluster


def servers(hub, where, user="cleo"):
    return sorted(hub.api(where["token"], "GET", f"/hub/api/users/{user}").json()["servers"])


def test_workers_are_named_servers_and_the_status_shows_them(hub, where, cluster):
    assert servers(hub, where) == ["one-w0", "one-w1"]
    assert (cluster.size, cluster.backend) == (2, "horovod")
    lines = str(cluster.status()).splitlines()
    assert lines[0] == "cluster one: 2 ranks on 2 workers, backend horovod"
    assert [line.split()[:3] for line in lines[2:]] == [["one-w0", "0", "cpu"], ["one-w1", "1", "cpu"]]
    assert re.search(r"idle for \d+:\d\d, stopped at \S* ?\d\d:\d\d UTC\S* unless used$", lines[2])
    assert "one-w1" in cluster._repr_html_()


def test_the_ranks_form_one_world(cluster):
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_a_check_names_the_worker_with_another_clock_and_another_version(cluster):
    assert not [fault for fault in cluster.check().faults if "clock" in fault or "farandole" in fault]
    cluster.run(
        "import importlib.metadata, time\n"
        "real = importlib.metadata.version, time.time\n"
        "importlib.metadata.version = lambda name: '0.0.1' if name == 'farandole' else real[0](name)\n"
        "time.time = lambda: real[1]() + 60",
        ranks=[1],
    )
    found = cluster.check()
    cluster.run("importlib.metadata.version, time.time = real", ranks=[1])
    assert [link.error for link in found.links] == [""]
    [version] = [fault for fault in found.faults if "farandole" in fault]
    assert version.startswith("farandole: rank 1 has 0.0.1, rank 0 has")
    [clock] = [fault for fault in found.faults if "clock" in fault]
    assert re.match(r"the clock of worker one-w1 \(host .*\) is (59|60)\.\d s ahead of the notebook's", clock)
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_a_check_is_refused_while_a_cell_runs(cluster):
    with ThreadPoolExecutor() as pool:
        running = pool.submit(cluster.run, "import time\nwhile True: time.sleep(0.1)")
        wait_for(lambda: "busy" in str(cluster.status()))
        with pytest.raises(UsageError, match="cluster 'one' is running another cell; wait for it, or stop it with"):
            cluster.check()
        cluster.interrupt()
        assert "stopped on all ranks" in str(running.exception(timeout=10))


def test_the_cluster_is_listed_and_its_name_is_in_use(where, cluster):
    assert Cluster.running(**where) == {"one": 2}
    with pytest.raises(ClusterExistsError, match="%cluster attach one"):
        Cluster.start(1, name="one", **where)
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_scaling_keeps_the_ranks_that_stay(hub, where, cluster):
    cluster.run("kept = 'kept'")
    cluster.scale(3)
    assert servers(hub, where) == ["one-w0", "one-w1", "one-w2"]
    assert text(cluster.run(SUM["horovod"])) == "3\n"
    assert text(cluster.run("print(kept)", ranks=[0, 1])) == "kept\n"
    cluster.scale(3)
    cluster.scale(1)
    assert servers(hub, where) == ["one-w0"]
    assert text(cluster.run(SUM["horovod"] + "\nprint(kept)")) == "1\nkept\n"
    cluster.scale(2)
    assert text(cluster.run(SUM["horovod"])) == "2\n"


@pytest.mark.parametrize("scale", [True, pytest.param(False, marks=pytest.mark.release)])
def test_a_worker_that_died_between_two_cells_is_replaced(where, scale):
    with Cluster.start(2, name="lost", **where) as cluster:
        cluster.run("import os; server = os.getppid()")
        os.kill(cluster.pull("server", ranks=[1])[1]["server"], signal.SIGKILL)
        wait_for(lambda: [kernel.rank for kernel in cluster._core.group.dead] == [1])
        if scale:
            cluster.scale(3)
        assert text(cluster.run(SUM["horovod"])) == ("3\n" if scale else "2\n")


def test_another_driver_attaches_and_finds_the_variables(where, cluster):
    cluster.run("import farandole as fd; mine = fd.rank()")
    other = Cluster.attach("one", **where)
    assert text(other.run("print('found', mine == fd.rank())")) == "found True\n"
    assert text(other.run(SUM["horovod"])) == "2\n"
    other.close()
    assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_a_cell_left_running_by_another_driver_can_be_interrupted(where, cluster):
    with ThreadPoolExecutor() as pool:
        left = pool.submit(cluster.run, "import time\nwhile True: time.sleep(0.1)")
        wait_for(lambda: "busy" in str(cluster.status()))
        other = Cluster.attach("one", **where)
        begun = time.monotonic()
        other.interrupt()
        assert time.monotonic() - begun < 5
        assert text(other.run(SUM["horovod"])) == "2\n"
        other.close()
        assert "KeyboardInterrupt" in str(left.exception(timeout=10))


def wait_for(happened, seconds=20):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)


def test_no_report_and_no_print_is_lost(cluster):
    code = (
        "import farandole as fd\n"
        "for step in range(5000):\n"
        "    fd.report(step=step, value=step * 0.5)\n"
        "    print('line', step)\n"
    )
    run = cluster.train(code, name="many")
    frame = cluster.store.load_run(run.id)
    assert frame.groupby("rank")["step"].apply(list).to_list() == [list(range(5000))] * 2
    assert (frame["value"] == frame["step"] * 0.5).all()
    for rank in range(2):
        log = (run.folder / "logs" / f"rank-{rank}.log").read_text()
        assert log.splitlines() == [f"line {step}" for step in range(5000)]
    assert cluster.logs(1, lines=1) == "line 4999"


def test_attach_to_a_missing_cluster(where):
    with pytest.raises(NoClusterError, match=r"no cluster 'nope' is running. `%cluster list`"):
        Cluster.attach("nope", **where)


def press_ctrl_c(_line):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_a_start_that_is_interrupted_leaves_no_server(hub, where):
    before = servers(hub, where)
    with pytest.raises(KeyboardInterrupt):
        Cluster.start(2, name="dropped", progress=press_ctrl_c, **where)
    assert servers(hub, where) == before


def test_an_interrupt_while_a_rank_is_replaced_leaves_no_cell_running(where):
    impatient = False

    def progress(line):
        if impatient:
            press_ctrl_c(line)

    with Cluster.start(1, name="repaired", profile="cpu-2", progress=progress, **where) as cluster:
        with pytest.raises(RankDiedError):
            cluster.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ranks=[1])
        impatient = True
        with pytest.raises(KeyboardInterrupt):
            cluster.run("ran = True")
        impatient = False
        assert text(cluster.run("print('ran' in globals())")) == "False\n"
        assert text(cluster.run(SUM["horovod"])) == "2\n"


def test_stop_leaves_no_server_and_no_process(hub, where):
    cluster = Cluster.start(1, name="short", profile="cpu-2", **where)
    cluster.run("import os; server, me = os.getppid(), os.getpid()")
    found = {number for values in cluster.pull("server", "me").values() for number in values.values()}
    assert len(found) == 3
    processes = [psutil.Process(pid) for pid in found]
    cluster.stop()
    assert "short-w0" not in servers(hub, where)
    # A rank checks once a second whether its parent process is still running.
    assert psutil.wait_procs(processes, timeout=5)[1] == []


def test_two_users_train_at_the_same_time_and_get_their_own_results(hub, tmp_path):
    def lead(user, backend):
        with Cluster.start(2, name="mine", backend=backend, **access(hub, user, tmp_path / user)) as cluster:
            cluster.push({"owner": user})
            run = cluster.train(f"{train(epochs=20)}\nfd.result([owner, fd.size(), step])", name=user)
            assert run.status == Status.FINISHED
            return run.results, [info.name for info in cluster.store.list()], len(cluster.store.load_run(run.id))

    with ThreadPoolExecutor() as pool:
        grace, hopper = pool.submit(lead, "emmy", "horovod"), pool.submit(lead, "hopper", "torch")
        for user, future in (("emmy", grace), ("hopper", hopper)):
            results, names, reports = future.result(timeout=180)
            assert results == {rank: [user, 2, 160] for rank in range(2)}
            assert names == [user]
            assert reports == 2 * 160
