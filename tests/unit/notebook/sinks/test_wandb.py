"""Tests that an offline run of W&B has the whole run, and that a missing package or login is reported before a run."""

import builtins
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.magics import FarandoleMagics
from farandole.notebook.sinks import wandb as wandb_sink
from farandole.notebook.sinks.delivery import Delivery
from farandole.notebook.sinks.trackers import trackers_of
from farandole.notebook.sinks.wandb import PROCESS, PROJECT, WandbTracker, check_wandb
from farandole.notebook.watcher import Watcher
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore

from tests.libraries.offline_wandb import offline_runs

SECONDS = 120


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """Make W&B write into ``tmp_path``."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))


def start(tmp_path):
    return RunStore(tmp_path / "runs").create(
        code="loss = 1",
        name="first",
        backend="torch",
        size=2,
        workers=["a", "b"],
        options={"line": "--elastic"},
        config={"lr": 0.1},
    )


def report(run, rank, step, **values):
    run.add_records(rank, report_to_json(Report(rank=rank, time=1e9 + step, step=step, values=values)))


def test_an_offline_run_has_metrics_configuration_code_and_lost_ranks(tmp_path):
    run = start(tmp_path)
    delivery = Delivery(run, WandbTracker(PROJECT))
    for step in range(100):
        for rank in range(2):
            report(run, rank, step, **{"loss": float(step * (rank + 1)), "top@5": 1.0})
    run.notice("rank 1 was lost")
    run.finish(Status.FINISHED)
    delivery.close()
    delivery.wait(SECONDS)
    assert run.notices == ("rank 1 was lost",)
    [sent] = offline_runs(tmp_path)
    start_record = sent.of("run")[0]
    assert (start_record.project, start_record.run_id, start_record.display_name) == (PROJECT, run.id, "first")
    assert (sent.config["backend"], sent.config["size"]) == ("torch", 2)
    assert sent.config["options"] == {"line": "--elastic"}
    assert sent.config["lr"] == 0.1
    curve = [(row["step"], row["loss/rank_1"]) for row in sent.history if "loss/rank_1" in row]
    assert curve == [(step, step * 2.0) for step in range(100)]
    assert [row["_timestamp"] for row in sent.history if "top_5/rank_0" in row] == [1e9 + step for step in range(100)]
    assert (sent.summary["notices"], sent.summary["status"]) == (["rank 1 was lost"], "finished")
    assert sent.text("code.py") == "loss = 1"
    assert json.loads(sent.text("run.json"))["id"] == run.id


@pytest.mark.parametrize(("status", "code"), [(Status.FINISHED, 0), (Status.FAILED, 1), (Status.INTERRUPTED, 1)])
def test_the_outcome_of_a_detached_run_is_sent_when_it_ends(tmp_path, status, code):
    run = start(tmp_path)
    watcher = Watcher(trackers=[WandbTracker("digits")])
    refresh = watcher(run)
    refresh()
    run.finish(status)
    refresh()
    watcher.finish()
    assert [sent.exit_code for sent in offline_runs(tmp_path)] == [code]


def test_a_disabled_run_is_kept_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = start(tmp_path)
    delivery = Delivery(run, WandbTracker(PROJECT))
    report(run, 0, 1, loss=1.0)
    run.finish(Status.FINISHED)
    delivery.close()
    delivery.wait(SECONDS)
    assert run.notices == ()
    assert not (tmp_path / "wandb").exists()


def test_values_that_are_no_numbers_are_kept(tmp_path):
    run = start(tmp_path)
    delivery = Delivery(run, WandbTracker(PROJECT))
    for step, loss in enumerate([float("nan"), float("inf"), 1.0]):
        report(run, 0, step, loss=loss)
    run.finish(Status.FAILED)
    delivery.close()
    delivery.wait(SECONDS)
    assert run.notices == ()
    [sent] = offline_runs(tmp_path)
    assert [str(row["loss/rank_0"]) for row in sent.history] == ["nan", "inf", "1"]


def test_a_run_whose_kernel_ends_has_failed(tmp_path):
    lines = [["open", {"project": PROJECT, "mode": "offline"}], ["log", [{"loss": 1.0, "step": 1}]]]
    written = "".join(json.dumps(line) + "\n" for line in lines)
    subprocess.run([sys.executable, "-m", PROCESS], input=written, text=True, check=True, timeout=SECONDS)
    [sent] = offline_runs(tmp_path)
    assert (sent.history[0]["loss"], sent.exit_code) == (1, 1)


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_server_that_cannot_be_reached_ends_only_the_delivery(tmp_path, monkeypatch, seconds):
    variables = {"MODE": "online", "BASE_URL": "http://127.0.0.1:9", "API_KEY": 40 * "0", "INIT_TIMEOUT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = start(tmp_path)
    delivery = Delivery(run, WandbTracker(PROJECT))
    delivery._thread.join(seconds)
    report(run, 0, 1, loss=1.0)
    run.finish(Status.FINISHED)
    delivery.close()
    delivery.wait(SECONDS)
    assert len(run.dataframe()) == 1
    [notice] = run.notices
    assert notice.startswith("W&B does not have the whole run: ")
    assert "timeout" in notice


def test_a_missing_wandb_is_reported_before_the_run(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "wandb":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install wandb"):
        check_wandb()


class Client:
    """The functions of W&B that `check_wandb` calls, and the number of logins."""

    class Error(Exception):
        """The base class of W&B's errors."""

    def __init__(self, *, mode="online", key=True, error=None, chosen="online"):
        self._mode, self._key, self._error, self._chosen = mode, key, error, chosen
        self.logins = 0

    def setup(self):
        return SimpleNamespace(settings=SimpleNamespace(mode=self._mode))

    def login(self, *, prompt):
        self.logins += 1
        self.prompted = prompt
        if self._error:
            raise self.Error(self._error)
        self._mode = self._chosen
        return self._key


@pytest.mark.parametrize(
    ("client", "variable", "logins"),
    [
        (Client(), "", 1),
        (Client(), "online", 1),
        (Client(key=False), "offline", 0),
        (Client(key=False), "disabled", 0),
        (Client(key=False, mode="offline"), "", 0),
        (Client(mode="offline"), "online", 1),
        # Without a key, W&B also offers to keep the run on this machine.
        (Client(key=False, chosen="offline"), "", 1),
    ],
)
def test_only_an_online_run_needs_a_login(monkeypatch, client, variable, logins):
    monkeypatch.setitem(sys.modules, "wandb", client)
    monkeypatch.setenv("WANDB_MODE", variable)
    check_wandb()
    assert client.logins == logins


@pytest.mark.parametrize("allowed", [True, False])
def test_a_client_without_input_is_not_asked_for_a_key(monkeypatch, allowed):
    client, shell = Client(), SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=allowed))
    monkeypatch.setitem(sys.modules, "wandb", client)
    monkeypatch.setattr(wandb_sink, "get_ipython", lambda: shell)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    check_wandb()
    assert client.prompted is allowed


@pytest.mark.parametrize(("line", "projects"), [("", []), ("--wandb", [PROJECT]), ("--wandb digits", ["digits"])])
def test_the_option_names_the_project(monkeypatch, line, projects):
    monkeypatch.setitem(sys.modules, "wandb", Client())
    options = FarandoleMagics.distributed_train.parser.parse_argstring(line)
    assert [tracker._project for tracker in trackers_of(options)] == projects


@pytest.mark.parametrize(
    ("client", "reason"), [(Client(key=False), "no API key is configured"), (Client(error="no tty"), "no tty")]
)
def test_a_missing_login_is_reported_with_the_remedy(monkeypatch, client, reason):
    monkeypatch.setitem(sys.modules, "wandb", client)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with pytest.raises(UsageError, match=f"{reason}; run `wandb login`.* or set WANDB_MODE=offline"):
        check_wandb()
