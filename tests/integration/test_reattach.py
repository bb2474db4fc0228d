"""Tests that a run survives the death of its driver, the proxy or the hub without missing or duplicate output."""

import pytest
from farandole import Cluster
from farandole.exceptions import NoClusterError, RankError
from farandole.protocol import LEFT_RECORDS, Status
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from hub.process import processes_of, wait_until
from tests.hub import RunningHub, run_hub
from tests.lost import CELL, PATIENCE, TOGETHER, Lost, assert_whole


@pytest.fixture
def lost(hub, tmp_path, request):
    lost = Lost(hub, tmp_path, request.node.originalname[5:27].replace("_", "-").strip("-"), *request.param)
    yield lost
    lost.stop()


def only(cluster):
    [background] = cluster.background.values()
    return background


@pytest.mark.parametrize("lost", [("torch",)], indirect=True)
def test_continues_after_its_driver_was_killed(lost):
    cluster = lost.attach()
    run = only(cluster).run
    assert run.status is Status.RUNNING
    assert lost.store.list()[0].status is Status.RUNNING
    received = len(run.dataframe())
    assert received >= 40
    wait_until(lambda: len(run.dataframe()) > received + 20, PATIENCE)
    lost.end.touch()
    run.wait(PATIENCE)
    assert run.status is Status.FINISHED
    assert_whole(lost.store, run)
    blocks = []
    only(cluster).show(blocks.append)
    assert "".join(block.text for block in blocks).startswith("line 0\nline 1\n")
    assert "".join(block.text for block in cluster.run("print('usable')")) == "usable\n"
    cluster.close()


@pytest.mark.parametrize("lost", [()], indirect=True)
@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.release)])
def test_is_complete_if_it_ended_meanwhile(lost, tmp_path, shared):
    lost.end.touch()
    store = lost.store if shared else RunStore(tmp_path / "elsewhere")
    cluster = lost.attach(store)
    run = only(cluster).run.wait(PATIENCE)
    assert (run.name, run.status) == ("long", Status.FINISHED)
    assert_whole(store, run)
    cluster.close()
    again = lost.attach(store)
    assert again.background == {}
    again.close()


@pytest.mark.parametrize("lost", [("none", "if fd.rank() == 1: raise ValueError('late')")], indirect=True)
def test_fails_like_its_cell(lost):
    lost.end.touch()
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*\): ValueError: late"):
            only(cluster).run.wait(PATIENCE)
        assert lost.store.list()[0].status is Status.FAILED


@pytest.mark.parametrize(
    "lost", [("none", "import os, signal\nif fd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)")], indirect=True
)
def test_reports_a_rank_that_died_without_a_driver(hub, lost):
    lost.end.touch()
    lost.wait_for_the_end_of(hub, 1)
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*\): its process is gone, killed by signal 9"):
            only(cluster).run.wait(PATIENCE)
        frame = lost.store.load_run(only(cluster).run.id)
        assert frame[frame["rank"] == 1]["step"].to_list() == list(range((frame["rank"] == 1).sum()))


@pytest.mark.parametrize("lost", [()], indirect=True)
def test_reports_a_worker_that_died_without_a_driver(hub, lost):
    known = len(lost.store.load_run(lost.store.list()[0].id).query("rank == 1"))
    assert known >= 20
    [worker] = [one for one in processes_of(hub.state) if is_worker(one, f"{lost.name}-w1")]
    worker.kill()
    wait_until(lambda: Cluster.running(**lost.where) == {lost.name: 1}, PATIENCE)
    lost.end.touch()
    with lost.attach() as cluster:
        with pytest.raises(RankError, match=r"rank 1 \(worker .*-w1\): its process is gone, lost: its worker ended"):
            only(cluster).run.wait(PATIENCE)
        assert len(only(cluster).run.dataframe().query("rank == 1")) == known
        assert len(lost.store.load_run(only(cluster).run.id).query("rank == 1")) == known


def is_worker(process, name):
    return (
        "farandole.server.worker" in " ".join(process.cmdline()) and process.environ().get("FARANDOLE_WORKER") == name
    )


@pytest.fixture
def shell(lost, monkeypatch):
    """The IPython shell of a new notebook, started by the user whose driver was killed."""
    monkeypatch.setenv("FARANDOLE_RUNS", str(lost.store.folder))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "farandole")
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("lost", [("torch",)], indirect=True)
def test_is_complete_without_its_workers_too(hub, lost, shell):
    lost.end.touch()
    for rank in range(2):
        lost.wait_for_the_end_of(hub, rank)
    Cluster.stop_named(lost.name, **lost.where)
    assert lost.store.list()[0].status is Status.LOST
    assert shell.run_line_magic("runs", "").rows()[0][1:3] == ("long", "finished")
    run = lost.store.load("long")
    assert_whole(lost.store, run)
    assert not (run.folder / LEFT_RECORDS).exists()
    with capture_output() as shown:
        shell.run_line_magic("runs", "wait long")
        shell.run_line_magic("runs", "show long")
    assert "finished" in shown.outputs[0].data["text/html"]


@pytest.mark.parametrize("lost", [("none", "if fd.rank() == 1: raise ValueError('late')")], indirect=True)
def test_a_killed_worker_loses_only_the_last_output_of_its_rank(hub, lost, shell):
    [worker] = [one for one in processes_of(hub.state) if is_worker(one, f"{lost.name}-w0")]
    worker.kill()
    lost.end.touch()
    lost.wait_for_the_end_of(hub, 1)
    Cluster.stop_named(lost.name, **lost.where)
    # `%runs` finds no journal of the killed worker and cannot know whether the worker is still running. Only an attempt
    # to attach asks the hub, which responds that the worker is gone.
    assert shell.run_line_magic("runs", "").rows()[0][2] == "lost"
    with pytest.raises(NoClusterError):
        lost.attach()
    run = lost.store.load("long")
    assert run.status is Status.FAILED
    assert "rank 1" in run.error
    assert "ValueError: late" in run.error
    assert "its process is gone, lost: its worker ended" in run.error
    frame = run.dataframe()
    for rank in range(2):
        steps = frame[frame["rank"] == rank]["step"].to_list()
        assert steps == list(range(len(steps)))
        assert len(steps) >= 20


@pytest.mark.parametrize("lost", [()], indirect=True)
def test_can_be_stopped_by_another_driver(lost):
    with lost.attach() as cluster:
        run = cluster.stop_run(only(cluster).run.id)
        assert run.status is Status.INTERRUPTED
        assert "".join(block.text for block in cluster.run("print('usable')")) == "usable\n"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("fault", "backend", "code"),
    [
        (RunningHub.kill_proxy, "none", CELL),
        pytest.param(RunningHub.kill_and_restart, "torch", TOGETHER, marks=pytest.mark.release),
        pytest.param(RunningHub.kill_and_restart, "horovod", TOGETHER, marks=pytest.mark.release),
    ],
)
def test_no_rank_stops_and_no_report_is_lost_when_proxy_or_hub_restart(tmp_path, fault, backend, code):
    end, store = tmp_path / "end", RunStore(tmp_path / "runs")
    with run_hub(tmp_path / "state") as hub:
        where = {"hub_url": hub.url, "token": hub.token_for("kay"), "store": store}
        with Cluster.start(2, name="calm", backend=backend, **where) as cluster:
            kernels = [kernel.kernel_id for kernel in cluster._core.group.kernels]
            run = cluster.train(code.format(end=str(end), last=""), detach=True)
            wait_until(lambda: len(run.dataframe()) >= 40, PATIENCE)
            fault(hub)
            received = len(run.dataframe())
            wait_until(lambda: len(run.dataframe()) > received + 100, PATIENCE)
            end.touch()
            run.wait(PATIENCE)
            assert_whole(store, run)
            assert "".join(block.text for block in cluster.run("print(step > 0)")) == "True\n"
            assert [kernel.kernel_id for kernel in cluster._core.group.kernels] == kernels
