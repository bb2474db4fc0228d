"""Tests that a hint names the ranks that wait in a collective and those that do not, on both backends."""

import re
import threading
from functools import partial

import pytest
from farandole import Cluster, Elastic
from farandole.driver.cells import runner
from farandole.driver.kernels.waits import WaitHints
from farandole.exceptions import RankError
from farandole.notebook.show import RankPrinter
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.cells import train

SECONDS = 2
PATIENCE = 120
BEGIN = {
    "horovod": "import horovod.torch as hvd, torch, time, pathlib\nimport farandole as fd\n",
    "torch": "import torch.distributed as dist, torch, time, pathlib\nimport farandole as fd\n",
}
CALL = {"horovod": "hvd.allreduce(torch.ones(1))", "torch": "dist.all_reduce(torch.ones(1))"}
SLEEP = "if fd.rank() == 1:\n    while not pathlib.Path({flag!r}).exists(): time.sleep(0.2)\n"
ELASTIC = """\
state = fd.state(step=0)
@fd.elastic
def loop(state):
    while state.step < 1:
        if fd.rank() == 1:
            while not pathlib.Path({flag!r}).exists(): time.sleep(0.2)
        {call}
        state.step += 1
        state.commit()
loop(state)
"""
SLOW_STEP = """
        if step == 3 and fd.rank() == 1:
            import pathlib, time
            while not pathlib.Path({flag!r}).exists(): time.sleep(0.2)
"""


@pytest.fixture(scope="module", params=["horovod", pytest.param("torch", marks=pytest.mark.release)])
def cluster(request, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend=request.param, store=store) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(runner, "WaitHints", partial(WaitHints, seconds=SECONDS))


@pytest.fixture
def flag(tmp_path):
    """The path of a file for which rank 1 waits."""
    return tmp_path / "flag"


def run(cluster, code, *, at_hint):
    """Execute a cell, show its output as a notebook does, and call `at_hint` when a hint is shown."""
    printer = RankPrinter()

    def show(block):
        printer(block)
        if "waits in" in block.text:
            at_hint()

    cluster.run(code, show=show)


def notice_of(cluster, code, flag, **options):
    """Execute a cell as a run, create the flag at the first hint, and return the only hint among the notices."""
    run = cluster.train(code, detach=True, **options)
    wait_until(lambda: any("waits in" in notice for notice in run.notices), PATIENCE)
    flag.touch()
    assert run.wait(PATIENCE).status is Status.FINISHED
    [hint] = [notice for notice in run.notices if "waits in" in notice]
    assert hint in run.info.warnings
    return hint


def waits(cluster, line):
    """Return a regular expression for a hint that rank 0 waits in the backend's call in this line."""
    return re.escape(f"rank 0 waits in {CALL[cluster.backend].partition('(')[0]} (cell ") + rf"\d+, line {line}\); "


def test_a_hint_below_a_cell_names_the_call_and_what_the_other_rank_does(cluster, flag, capsys):
    code = BEGIN[cluster.backend] + SLEEP.format(flag=str(flag)) + CALL[cluster.backend]
    run(cluster, code, at_hint=flag.touch)
    hint = capsys.readouterr().err
    doing = r"rank 1 does not: it is in cell \d+, line 4 \(time\.sleep\)\."
    assert re.fullmatch(waits(cluster, 5) + doing + ".*\n", hint), hint


def test_a_rank_that_has_ended_the_cell_is_named(cluster, capsys):
    def interrupt():
        threading.Thread(target=cluster.interrupt).start()

    with pytest.raises(RankError, match="stopped on all ranks"):
        run(cluster, f"{BEGIN[cluster.backend]}if fd.rank() == 0: {CALL[cluster.backend]}", at_hint=interrupt)
    assert re.match(waits(cluster, 3) + "rank 1 does not: it has ended the cell", capsys.readouterr().err)


def test_a_hint_in_an_elastic_run_is_a_notice(cluster, flag):
    code = BEGIN[cluster.backend] + ELASTIC.format(flag=str(flag), call=CALL[cluster.backend])
    hint = notice_of(cluster, code, flag, elastic=Elastic())
    assert re.match(waits(cluster, 9) + r"rank 1 does not: it is in cell \d+, line 8 \(time\.sleep\)", hint), hint


def test_a_backward_pass_that_averages_gradients_is_named(cluster, flag):
    hint = notice_of(cluster, train(epochs=1, fault=SLOW_STEP.format(flag=str(flag)).strip()), flag)
    assert re.match(r"rank 0 waits in loss\.backward \(cell \d+, line \d+\); rank 1 does not: ", hint), hint


def test_ranks_that_make_progress_cause_no_hint(cluster, capsys):
    loop = f"for step in range(30):\n    time.sleep({SECONDS / 10} * fd.rank())\n    {CALL[cluster.backend]}"
    run(cluster, BEGIN[cluster.backend] + loop, at_hint=cluster.interrupt)
    assert capsys.readouterr().err == ""
