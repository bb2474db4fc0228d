"""Tests for faults during training on a real hub. Each fault must end the cell in time, and the next cell must work.

FARANDOLE_FAULT_ROUNDS sets how often all faults are repeated on the same cluster. `make test` runs the first round on
Horovod only.
"""

import os
import time

import psutil
import pytest
from farandole import Cluster
from farandole.exceptions import RankDiedError, RankError
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import STUCK, SUM, interrupt_when_it_prints, text, train

ROUNDS = int(os.environ.get("FARANDOLE_FAULT_ROUNDS", "2"))
GLOO_SECONDS = 10
DEATH_SECONDS = GLOO_SECONDS + 2
RELEASE_SECONDS = 8
INTERRUPT_SECONDS = 5
LONG = 100_000
ON_RANK_1 = "if fd.rank() == 1 and step == 5: "


@pytest.fixture(scope="module", params=["horovod", pytest.param("torch", marks=pytest.mark.release)])
def cluster(request, hub, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    user = f"faults-{request.param}"
    access = {"hub_url": hub.url, "token": hub.token_for(user), "store": store, "progress": print}
    with Cluster.start(2, name="f", backend=request.param, **access) as cluster:
        cluster.train(train())  # Import all modules now, because the time limits below do not include imports.
        yield cluster


def fails(cluster, error, code, seconds):
    """Run a training cell that must fail in time, check the run's record of the failure, and return the error."""
    begun = time.monotonic()
    with pytest.raises(error) as caught:
        cluster.train(code)
    assert time.monotonic() - begun < seconds
    run = cluster.store.list()[0]
    assert (run.status, run.error) == (Status.FAILED, str(caught.value))
    return caught.value


def a_rank_is_killed(cluster, capsys):
    error = fails(
        cluster, RankDiedError, train(LONG, f"{ON_RANK_1}os.kill(os.getpid(), signal.SIGKILL)"), DEATH_SECONDS
    )
    assert "rank 1 (worker f-w1): its process is gone, killed by signal 9 (SIGKILL)" in str(error)
    assert "The next cell starts a new rank in its place with empty variables" in str(error)
    assert error.ranks == (1,)


def a_whole_worker_is_killed(cluster, capsys):
    cluster.run("import os; server, me = os.getppid(), os.getpid()", ranks=[1])
    orphan = cluster.pull("me", ranks=[1])[1]["me"]
    error = fails(
        cluster, RankDiedError, train(LONG, f"{ON_RANK_1}os.kill(os.getppid(), signal.SIGKILL)"), DEATH_SECONDS
    )
    assert "rank 1 (worker f-w1): its process is gone, lost: its worker ended or cannot be reached" in str(error)
    assert error.ranks == (1,)
    psutil.wait_procs([psutil.Process(orphan)] if psutil.pid_exists(orphan) else [], timeout=10)
    assert not psutil.pid_exists(orphan), "the rank of the dead worker is still alive"


def one_rank_raises(cluster, capsys):
    error = fails(cluster, RankError, train(LONG, f"{ON_RANK_1}raise ValueError('only here')"), RELEASE_SECONDS)
    assert type(error) is RankError
    lines = str(error).splitlines()
    assert lines[0] == "the cell failed on rank 1 (worker f-w1): ValueError: only here"
    assert lines[1:] == ["rank 0 waited for it and was released."]
    assert "only here" in error.traceback


def interrupted_in_a_collective(cluster, capsys):
    code = (
        "import threading, farandole as fd\nif fd.rank() == 1:\n    threading.Event().wait()\n" + STUCK[cluster.backend]
    )
    assert interrupt_when_it_prints(lambda show: cluster.train(code, show=show)) < INTERRUPT_SECONDS
    assert cluster.store.list()[0].status == Status.INTERRUPTED


def interrupted_in_training(cluster, capsys):
    code = train(LONG, "if step == 5: print('in', flush=True)")
    assert interrupt_when_it_prints(lambda show: cluster.train(code, show=show)) < INTERRUPT_SECONDS


def interrupted_in_plain_python(cluster, capsys):
    code = "print('in', flush=True)\nwhile True: pass"
    assert interrupt_when_it_prints(lambda show: cluster.train(code, show=show)) < INTERRUPT_SECONDS


FAULTS = [
    a_rank_is_killed,
    one_rank_raises,
    interrupted_in_a_collective,
    interrupted_in_training,
    interrupted_in_plain_python,
    a_whole_worker_is_killed,
]


TURNS = [0, *(pytest.param(turn, marks=pytest.mark.release) for turn in range(1, ROUNDS))]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("turn", TURNS)
def test_the_cell_ends_in_time_and_the_next_run_works(cluster, capsys, fault, turn):
    fault(cluster, capsys)
    capsys.readouterr()
    run = cluster.train(train())
    assert (run.status, run.size, run.backend) == (Status.FINISHED, 2, cluster.backend)
    assert run.results[0] == run.results[1]
    assert run.results[0][0] == 16
    if fault in (a_rank_is_killed, a_whole_worker_is_killed):
        assert "rank 1 on worker f-w1 is gone" in capsys.readouterr().out
    assert text(cluster.run(SUM[cluster.backend])) == "2\n"
