"""The contract of every backend, tested on a local cluster with one set of tests for all backends."""

import _thread
import threading
import time

import pytest
from farandole import Cluster
from farandole.exceptions import RankError, TransferError, UsageError
from farandole.protocol import Status
from farandole.runs.store import RunStore
from farandole.server.worker.__main__ import ALLOCATOR

from tests.cells import STUCK, SUM, interrupt_when_it_prints, text


@pytest.fixture(scope="module", params=["horovod", "torch"])
def cluster(request, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend=request.param, store=store) as cluster:
        yield cluster


def pids(cluster):
    cluster.run("import os; pid = os.getpid()")
    return {rank: found["pid"] for rank, found in cluster.pull("pid").items()}


def test_the_world_exists_before_a_cell(cluster):
    blocks = cluster.run("import farandole as fd; print(fd.rank(), fd.size(), fd.local_rank(), fd.local_size())")
    assert {block.ranks: block.text for block in blocks} == {(0,): "0 2 0 2\n", (1,): "1 2 1 2\n"}


def test_a_rank_starts_with_the_allocators_settings(cluster):
    cluster.run("environment = open('/proc/self/environ').read().split(chr(0))")
    began_with = {f"{variable}={value}" for variable, value in ALLOCATOR.items()}
    assert all(began_with <= set(found["environment"]) for found in cluster.pull("environment").values())


def test_a_cell_with_the_backends_api_works(cluster):
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_a_cell_on_one_rank_does_not_affect_the_other(cluster):
    [block] = cluster.run("import farandole as fd; print(fd.rank())", ranks=[1])
    assert (block.ranks, block.text) == ((1,), "1\n")


def test_an_error_on_all_ranks_is_reported_once_and_keeps_the_ranks(cluster):
    before = pids(cluster)
    with pytest.raises(RankError, match=r"^the cell failed on ranks 0-1: SyntaxError: "):
        cluster.run("def broken(:\n    pass")
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert pids(cluster) == before


def test_an_error_on_one_rank_releases_the_other_and_the_world_forms_again(cluster):
    code = "import farandole as fd\nif fd.rank() == 0: raise ValueError('boom')\n" + STUCK[cluster.backend]
    begun = time.monotonic()
    with pytest.raises(RankError, match=r"failed on rank 0 .*ValueError: boom\nrank 1 waited for it") as caught:
        cluster.run(code)
    assert time.monotonic() - begun < 8
    assert "ValueError" in caught.value.traceback
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_an_interrupt_ends_a_blocked_collective_and_keeps_the_variables(cluster):
    cluster.run("kept = 5")
    code = "import farandole as fd\nif fd.rank() == 1:\n    " + STUCK[cluster.backend].replace("\n", "\n    ")
    code += "\nelse:\n    import threading; threading.Event().wait()"
    assert interrupt_when_it_prints(lambda show: cluster.run(code, show=show)) < 5
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert 5 in [found.get("kept") for found in cluster.pull("kept", ranks=[0]).values()]


LATE = """
import signal
from IPython.core.getipython import get_ipython
kernel = get_ipython().kernel
finish = kernel.finish_metadata
def interrupted(*arguments):
    kernel.finish_metadata = finish
    signal.raise_signal(signal.SIGINT)
    return finish(*arguments)
kernel.finish_metadata = interrupted
"""
"""Code that interrupts the rank after the cell has ended and before its reply is sent."""


def test_an_interrupt_between_a_cell_and_its_reply_loses_no_rank(cluster):
    before = pids(cluster)
    with pytest.raises(RankError, match="KeyboardInterrupt"):
        cluster.run(LATE, ranks=[0])
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert pids(cluster) == before


def test_an_interrupt_ends_plain_python_and_keeps_the_variables(cluster):
    cluster.run("kept = 6")
    code = "print('in', flush=True)\nwhile True: pass"
    assert interrupt_when_it_prints(lambda show: cluster.run(code, show=show)) < 5
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert cluster.pull("kept") == {0: {"kept": 6}, 1: {"kept": 6}}


def test_stop_from_another_thread_ends_a_run(cluster):
    stopper = threading.Thread(target=cluster.interrupt)

    def press(block):
        if not stopper.is_alive() and stopper.ident is None:
            stopper.start()

    with pytest.raises(RankError, match="the cell was stopped on all ranks"):
        cluster.train("print('in', flush=True)\nwhile True: pass", show=press)
    stopper.join()
    assert cluster.store.list()[0].status == Status.INTERRUPTED
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_small_values_are_pushed_and_pulled(cluster):
    values = {"x": [1, {"a": (2, 3)}], "f": lambda y: y + 1}
    cluster.push(values)
    cluster.run("z = f(x[0])")
    assert cluster.pull("z", "x") == {rank: {"z": 2, "x": values["x"]} for rank in range(2)}
    cluster.push({"x": "one"}, ranks=[1])
    assert [found["x"] for found in cluster.pull("x").values()] == [values["x"], "one"]


def test_a_large_value_is_broadcast(cluster):
    cluster.push({"big": bytes(range(256)) * 80_000})
    cluster.run("import hashlib; digest = hashlib.sha256(big).hexdigest(); length = len(big); del big")
    found = cluster.pull("digest", "length")
    assert found[0] == found[1]
    assert found[0]["length"] == 20_480_000


def test_a_missing_or_unpicklable_value_is_a_transfer_error(cluster):
    with pytest.raises(TransferError, match=r"Rank 1 has no variable 'nope'"):
        cluster.pull("nope", ranks=[1])
    cluster.run("generator = (i for i in ())")
    with pytest.raises(TransferError, match=r"cannot pickle 'generator'"):
        cluster.pull("generator")
    with pytest.raises(TransferError, match=r"'lock' \(lock\) cannot be pushed"):
        cluster.push({"lock": threading.Lock()})
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_reports_logs_and_results_arrive(cluster):
    run = cluster.train(
        "import farandole as fd\n"
        "for step in range(50):\n"
        "    fd.report(step=step, loss=1 / (step + 1), bad=float('nan'))\n"
        "    print('step', step)\n"
        "fd.result({'rank': fd.rank()})",
        name="first",
    )
    assert (run.status, run.backend, run.size) == (Status.FINISHED, cluster.backend, 2)
    assert run.results == {0: {"rank": 0}, 1: {"rank": 1}}
    frame = cluster.store.load_run(run.id)
    assert frame.groupby("rank")["step"].apply(list).to_list() == [list(range(50))] * 2
    assert frame["bad"].isna().all()
    for rank in range(2):
        log = (run.folder / "logs" / f"rank-{rank}.log").read_text()
        assert log.splitlines() == [f"step {step}" for step in range(50)]


def test_the_backend_may_change_between_runs(cluster):
    other = {"horovod": "torch", "torch": "horovod"}[cluster.backend]
    first = cluster.backend
    assert cluster.train(SUM[other], backend=other).status == Status.FINISHED
    assert cluster.train(SUM[first], backend=first).status == Status.FINISHED
    with pytest.raises(UsageError, match=r"no backend 'mpi'; choose one of horovod, torch, none"):
        cluster.train("pass", backend="mpi")
    assert cluster.backend == first


SCRIPT = {
    "horovod": "import horovod.torch as hvd\nhvd.init()\nassert hvd.size() == 2\n{}\nhvd.shutdown()",
    "torch": "import torch.distributed as dist\ndist.init_process_group('gloo')\n{}\ndist.destroy_process_group()",
}
"""For each backend, a script that creates the process group, does something and leaves the group."""


def test_a_script_that_leaves_the_world_may_run_twice_and_the_next_cell_has_a_world(cluster):
    before = pids(cluster)
    for _ in range(2):
        assert text(cluster.run(SCRIPT[cluster.backend].format(SUM[cluster.backend]))) == "2\n"
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    run = cluster.train(SCRIPT[cluster.backend].format("pass"))
    assert run.status == Status.FINISHED
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert pids(cluster) == before


def test_one_rank_that_leaves_the_world_does_not_break_the_next_cell(cluster):
    before = pids(cluster)
    cluster.run(SCRIPT[cluster.backend].format("pass"), ranks=[0])
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
    assert pids(cluster) == before


def test_the_prompt_and_the_arguments_of_the_kernel_are_not_in_the_way_of_scripts(cluster):
    cluster.run("import argparse, sys\nassert vars(argparse.ArgumentParser().parse_args()) == {}")
    assert text(cluster.run("print(hasattr(sys, 'ps1'))")) == f"{cluster.backend == 'horovod'}\n"


def test_a_check_measures_the_world_and_does_not_change_the_ranks(cluster):
    cluster.run("names = None; names = set(globals())")
    found = cluster.check()
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert found.ranks[0].versions == found.ranks[1].versions
    assert found.ranks[0].versions["torch"] != "none"
    # All ranks on this machine share a clock, so the measured skew must lie within the error that the check reports.
    assert all(abs(rank.skew) <= rank.skew_error + 1e-3 for rank in found.ranks)
    [link] = found.links
    assert (link.first, link.second, link.error) == (0, 1, "")
    assert link.latency > 0
    assert link.bandwidth > 1e6
    assert found.all_reduce > 1e6
    assert text(cluster.run("print(set(globals()) - names)")) == "set()\n"
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_an_all_reduce_that_fails_is_a_fault_and_the_next_cell_works(cluster):
    cluster.run(
        "from farandole.ranks.preflight import probe as preflight\n"
        "measured = preflight.all_reduce\n"
        "def fail(): raise OSError('no wire')\n"
        "preflight.all_reduce = fail",
        ranks=[1],
    )
    found = cluster.check()
    cluster.run("preflight.all_reduce = measured", ranks=[1])
    assert found.all_reduce is None
    assert "the sum failed on rank 1 (worker main-w0): OSError: no wire" in found.faults[-1]
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_a_rank_that_does_not_exist_is_refused(cluster):
    for ranks in ([7], [-1], [0, 2]):
        with pytest.raises(UsageError, match=r"there is no rank .*'main' has the ranks 0-1"):
            cluster.run("pass", ranks=ranks)


def test_a_local_cluster_cannot_be_scaled_and_survives_the_attempt(cluster):
    cluster.scale(1)
    for workers, message in ((0, "at least 1 worker, not 0"), (2, "--ranks")):
        with pytest.raises(Exception, match=message):
            cluster.scale(workers)
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


def test_a_run_stopped_by_its_user_reports_it_for_every_rank(cluster):
    seen, pressed = [], []

    def watch(run):
        seen.append(run)

        def press():
            if len(run.dataframe()) and not pressed:
                pressed.append(True)
                _thread.interrupt_main()

        return press

    with pytest.raises(KeyboardInterrupt):
        cluster.train(
            "import time, farandole as fd\nfor step in range(600):\n    fd.report(step=step)\n    time.sleep(0.05)",
            watch=watch,
        )
    [run] = seen
    assert run.status is Status.INTERRUPTED
    assert [view.state for view in run.ranks()] == ["stopped", "stopped"]
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"


@pytest.fixture
def broken_horovod(tmp_path, monkeypatch):
    """Make the import of Horovod fail, as if it had been built for another version of torch."""
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").touch()
    (tmp_path / "horovod" / "torch.py").write_text("raise ImportError('undefined symbol')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_horovod_is_the_default_only_if_it_can_be_imported(broken_horovod, tmp_path):
    said, store = [], RunStore(tmp_path / "runs")
    with Cluster.start(local=True, ranks=2, store=store, progress=said.append) as cluster:
        assert cluster.backend == "torch"
        assert text(cluster.run(SUM["torch"])) == "2\n"
    [line] = [line for line in said if "Horovod cannot be imported" in line]
    assert line.endswith("ImportError: undefined symbol")


def test_requested_horovod_that_cannot_be_imported_is_an_error(broken_horovod, tmp_path):
    with pytest.raises(RankError, match=r"importing backend horovod.*undefined symbol"):
        Cluster.start(local=True, ranks=2, backend="horovod", store=RunStore(tmp_path / "runs"))
