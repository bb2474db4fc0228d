"""Tests with invalid input in a real IPython shell that leads a cluster on a real hub."""

import os
import stat
import subprocess
import sys
import time

import pytest
from farandole import Cluster
from farandole.exceptions import (
    ClusterExistsError,
    HubError,
    HubUnreachableError,
    NoClusterError,
    PermissionDeniedError,
    QuotaError,
    RankError,
    TransferError,
    UsageError,
    WorkerStartError,
)
from farandole.notebook.magics import FarandoleMagics
from farandole.protocol import Status
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell

USER = "bad"


@pytest.fixture(scope="module")
def token(hub):
    return hub.token_for(USER)


@pytest.fixture(scope="module", autouse=True)
def environment(hub, token, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_HUB_URL", hub.url)
        patch.setenv("JUPYTERHUB_API_TOKEN", token)
        patch.setenv("FARANDOLE_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="module")
def shell(environment):
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "farandole")
    shell.run_line_magic("cluster", "start --workers 2 --name good")
    yield shell
    shell.run_line_magic("cluster", "stop")


@pytest.fixture
def lone_shell():
    """A shell that leads no cluster."""
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "farandole")
    return shell


def servers(hub, token):
    model = hub.api(token, "GET", f"/hub/api/users/{USER}").json()
    return sorted(name for name in model["servers"] if name and not name.startswith("good-"))


def works(shell, capsys):
    capsys.readouterr()
    shell.run_cell_magic("distributed", "", "import farandole as fd; print('all', fd.size())")
    assert "all 2" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["status", "scale 2", "logs 0", "stop", "interrupt"])
def test_no_cluster_yet(lone_shell, line):
    with pytest.raises(NoClusterError, match="%cluster start --workers 2"):
        lone_shell.run_line_magic("cluster", line)


@pytest.mark.parametrize("magic", ["distributed", "distributed_train"])
def test_no_cluster_yet_for_a_cell(lone_shell, magic):
    with pytest.raises(NoClusterError, match="%cluster start --workers 2"):
        lone_shell.run_cell_magic(magic, "", "pass")


@pytest.mark.parametrize("count", ["0", "-3"])
def test_no_or_fewer_workers(hub, token, lone_shell, count):
    with pytest.raises(UsageError, match=f"number of workers must be at least 1, not {count}"):
        lone_shell.run_line_magic("cluster", f"start --workers {count}")
    assert servers(hub, token) == []


def test_too_many_workers(hub, token, lone_shell):
    with pytest.raises(QuotaError, match="16"):
        lone_shell.run_line_magic("cluster", "start --workers 17 --name many")
    assert servers(hub, token) == []


@pytest.mark.parametrize(
    ("line", "error", "reason"),
    [
        ("start --profile huge", HubError, "^There is no profile 'huge' here. Choose one of: cpu, cpu-2, lean"),
        ("start --profile cpu2", HubError, r"Did you mean 'cpu-2' or 'cpu'\?"),
        ("start --backend mpi", UsageError, "choose one of horovod, torch, none"),
        ("start --name Not_A_Name", UsageError, "lower-case letters"),
        ("start --ranks 99", HubError, "1 to 8"),
        ("start --ranks 0", UsageError, "number of ranks must be at least 1, not 0"),
        ("start --workers two", UsageError, "--workers"),
        ("launch", UsageError, "use one of start, status, check, scale"),
        ("attach nothing", NoClusterError, "%cluster list"),
    ],
)
def test_unknown_words(hub, token, lone_shell, line, error, reason):
    with pytest.raises(error, match=reason):
        lone_shell.run_line_magic("cluster", line)
    assert servers(hub, token) == []


@pytest.mark.parametrize(
    ("ranks", "reason"), [("7", "the ranks 0-1"), ("3-1", "write `1-3`"), ("x", "such as `0,2-3`")]
)
def test_a_rank_that_does_not_exist(shell, capsys, ranks, reason):
    with pytest.raises(UsageError, match=reason):
        shell.run_cell_magic("distributed", f"--ranks {ranks}", "print('never')")
    works(shell, capsys)


def test_an_unknown_backend_for_one_run(shell, capsys):
    with pytest.raises(UsageError, match="choose one of horovod, torch, none"):
        shell.run_cell_magic("distributed_train", "--backend mpi", "print('never')")
    works(shell, capsys)


def test_no_hub_at_that_address():
    with pytest.raises(HubUnreachableError, match="Check the address"):
        Cluster.start(2, hub_url="http://127.0.0.1:9", token="any")


def test_an_unknown_token(hub):
    with pytest.raises(PermissionDeniedError, match="expired or lacks a scope"):
        Cluster.start(2, hub_url=hub.url, token="0" * 32)


def test_a_token_without_the_scope(hub):
    token = hub.token_for("poor", ["read:users!user"])
    with pytest.raises(PermissionDeniedError, match="expired or lacks a scope"):
        Cluster.start(2, hub_url=hub.url, token=token)


def test_a_slow_worker_stops_the_others_too(hub, token, lone_shell):
    with pytest.raises(WorkerStartError, match=r"slow-w\d did not start within 0.5 s"):
        lone_shell.run_line_magic("cluster", "start --workers 2 --name slow --timeout 0.5")
    assert servers(hub, token) == []


def test_two_clusters_of_one_name(lone_shell, shell):
    with pytest.raises(ClusterExistsError, match="%cluster attach good"):
        lone_shell.run_line_magic("cluster", "start --name good")
    with pytest.raises(UsageError, match="already leads cluster 'good'"):
        shell.run_line_magic("cluster", "start --name other")


def test_impossible_pushes(shell, capsys):
    with pytest.raises(TransferError, match="'nowhere' is not defined in this notebook"):
        shell.run_line_magic("push", "nowhere")
    shell.user_ns["lock"] = (number for number in range(3))
    with pytest.raises(TransferError, match=r"'lock' \(generator\) cannot be pushed"):
        shell.run_line_magic("push", "lock")
    works(shell, capsys)


def test_a_pull_of_a_missing_name_names_the_rank(shell, capsys):
    shell.run_cell_magic("distributed", "--ranks 0", "only_here = 1")
    with pytest.raises(TransferError, match=r"(?s)rank 1.*no variable 'only_here'"):
        shell.run_line_magic("pull", "only_here")
    works(shell, capsys)


def test_a_syntax_error_is_shown_once(shell, capsys):
    with pytest.raises(RankError, match="ranks 0-1: SyntaxError") as caught:
        shell.run_cell_magic("distributed", "", "def f(:\n  pass")
    assert str(caught.value).count("SyntaxError") == 1
    works(shell, capsys)


def test_100_mb_of_output_are_truncated_on_the_screen_and_kept_in_the_log(shell, capsys):
    code = "import farandole as fd\nif fd.rank() == 0:\n    for _ in range(1000):\n        print('x' * 99_999)"
    shell.run_cell_magic("distributed_train", "--name flood -o flood", code)
    shown = capsys.readouterr()
    assert len(shown.out) < 3_000_000
    assert "more characters are not shown" in shown.err
    assert (shell.user_ns["flood"].folder / "logs" / "rank-0.log").stat().st_size == 100_000_000
    works(shell, capsys)


@pytest.mark.parametrize(
    ("value", "reason"),
    [("'high'", "'loss' is a str"), ("{'a': 1}", "'loss' is a dict"), ("torch.ones(2)", "'loss' is a .*2 elements")],
)
def test_a_report_of_an_invalid_value(shell, capsys, value, reason):
    with pytest.raises(RankError, match=reason):
        shell.run_cell_magic("distributed_train", "", f"import torch, farandole as fd\nfd.report(loss={value})")
    works(shell, capsys)


def test_an_unwritable_run_folder(shell, capsys, tmp_path):
    magics = shell.magics_manager.registry[FarandoleMagics.__name__]
    blocked = tmp_path / "runs"
    blocked.write_text("a file where a folder should be")
    before, magics.cluster.store = magics.cluster.store, RunStore(blocked)
    try:
        shell.run_cell_magic("distributed_train", "-o kept", "import farandole as fd\nfd.report(step=1, loss=2.0)")
    finally:
        magics.cluster.store = before
    kept = shell.user_ns["kept"]
    assert kept.status is Status.FINISHED
    assert len(kept.dataframe()) == 2
    assert any("cannot be written" in notice for notice in kept.notices)
    assert stat.S_ISREG(blocked.stat().st_mode)
    works(shell, capsys)


DRIVER = """
import time
from farandole import Cluster
cluster = Cluster.start(2, name="orphan")
print("ready", flush=True)
cluster.train("import time, farandole as fd\\nkept = 42\\nfor step in range(600):\\n"
              "    fd.report(step=step)\\n    time.sleep(0.05)")
"""


@pytest.mark.release
def test_attach_finds_the_cluster_of_a_driver_killed_during_a_run(hub, token, lone_shell, capsys, tmp_path):
    runs = tmp_path / "runs"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"FARANDOLE_RUNS": str(runs)},
    )
    with driver:
        for line in driver.stdout:
            if line.strip() == "ready":
                break
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size for path in runs.glob("*/metrics/rank-1.jsonl")):
            assert time.monotonic() < deadline, "the run reported nothing"
            time.sleep(0.1)
        driver.kill()
    [run] = RunStore(runs).list()
    assert run.status is Status.LOST
    assert len(RunStore(runs).load_run(run.id)) > 0
    lone_shell.run_line_magic("cluster", "attach orphan")
    lone_shell.run_line_magic("cluster", "list")
    assert "orphan: 2 workers" in capsys.readouterr().out
    lone_shell.run_line_magic("cluster", "interrupt")
    lone_shell.run_cell_magic("distributed", "", "print('kept', kept)")
    assert "kept 42" in capsys.readouterr().out
    lone_shell.run_line_magic("cluster", "stop")
    assert servers(hub, token) == []
