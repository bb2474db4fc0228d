"""Tests for all magics in a real IPython shell, which leads ranks on this machine."""

import re

import pytest
from farandole import load_run, load_runs
from farandole.exceptions import DeadlineError, RankDiedError, RankError, UsageError
from farandole.notebook.display import RUN_TYPE
from farandole.protocol import Status
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.cells import train

START = "start --local --ranks 2 --backend torch"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_RUNS", str(tmp_path_factory.mktemp("runs")))
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "farandole")
        shell.run_line_magic("cluster", START)
        yield shell
        shell.run_line_magic("cluster", "stop")
        InteractiveShell.clear_instance()


def output_of(shell, magic, line, cell=None):
    with capture_output() as captured:
        value = shell.run_line_magic(magic, line) if cell is None else shell.run_cell_magic(magic, line, cell)
    return captured, value


def test_status(shell):
    _, status = output_of(shell, "cluster", "status")
    assert str(status).startswith("cluster main: 2 ranks on 1 worker, backend torch")


def test_check(shell):
    _, found = output_of(shell, "cluster", "check")
    lines = str(found).splitlines()
    assert lines[0] == "cluster main, backend torch"
    assert [line.split()[:2] for line in lines[2:5]] == [["driver", "-"], ["0", "main-w0"], ["1", "main-w0"]]
    assert "all-reduce of 16 MiB on 2 ranks" in found._repr_html_()


def test_output_is_labelled_and_equal_output_is_folded(shell):
    code = "import farandole as fd\nprint('both')\nif fd.rank() == 1: print('one')\n[1, 2]"
    captured, _ = output_of(shell, "distributed", "", code)
    lines = [line for line in captured.stdout.splitlines() if line]
    assert [line.strip("─ ") for line in lines] == ["ranks 0-1", "both", "rank 1", "one", "ranks 0-1"]
    assert [output.data["text/plain"] for output in captured.outputs] == ["[1, 2]"]


def test_a_cell_on_one_rank(shell):
    captured, _ = output_of(shell, "distributed", "--ranks 1", "print(fd.rank())")
    assert captured.stdout.splitlines()[1:] == ["1"]


def test_push_and_pull(shell):
    shell.run_cell("x, y = [1, 2], {'a': 3}")
    shell.run_line_magic("push", "x, y")
    shell.run_cell_magic("distributed", "", "z = x + [y['a'], fd.rank()]")
    shell.run_line_magic("pull", "z --rank 1")
    assert shell.user_ns["z"] == [1, 2, 3, 1]
    shell.run_line_magic("pull", "z")
    assert shell.user_ns["z"] == {0: [1, 2, 3, 0], 1: [1, 2, 3, 1]}


def test_a_training_cell_shows_and_saves_a_run(shell):
    captured, _ = output_of(shell, "distributed_train", "--name first --output run --tensorboard", train())
    run = shell.user_ns["run"]
    assert (run.status, run.name, run.result[0]) == (Status.FINISHED, "first", 16)
    first, last = (output.data for output in captured.outputs if RUN_TYPE in output.data)
    assert first[RUN_TYPE] == last[RUN_TYPE] == {"run": run.id, "version": 1}
    assert "running" in first["text/plain"]
    assert "image/svg+xml" in last
    assert len(load_run(run.id)) == 2 * 16
    assert list(run.folder.rglob("events.out.tfevents*"))


def test_a_run_on_another_backend(shell):
    output_of(shell, "distributed_train", "--backend horovod -o other", train())
    assert (shell.user_ns["other"].backend, shell.user_ns["other"].result[0]) == ("horovod", 16)
    output_of(shell, "distributed_train", "--backend torch -o again", train())
    ours, theirs = shell.user_ns["again"].result[1], shell.user_ns["other"].result[1]
    assert ours == pytest.approx(theirs, abs=1e-4)


CONFIGURED = """
import farandole as fd
hp = fd.config(lr=0.1, batch=64)
if fd.rank() == 1:
    fd.config(only_on_rank_1=True)
fd.report(loss=hp["lr"])
fd.result([hp["lr"], hp["batch"]])
"""


def test_the_same_cell_runs_with_another_learning_rate(shell):
    output_of(shell, "distributed_train", "-o plain", CONFIGURED)
    output_of(shell, "distributed_train", "-o other --config lr=0.01 --config bach=8", CONFIGURED)
    plain, other = shell.user_ns["plain"], shell.user_ns["other"]
    assert (plain.results, other.results) == ({0: [0.1, 64], 1: [0.1, 64]}, {0: [0.01, 64], 1: [0.01, 64]})
    assert (plain.config, other.config) == ({"lr": 0.1, "batch": 64}, {"lr": 0.01, "bach": 8, "batch": 64})
    assert plain.notices == ()
    assert other.notices[0].startswith("--config bach has changed nothing")
    rows = load_runs().set_index("id")
    assert rows.loc[[plain.id, other.id], "config.lr"].tolist() == [0.1, 0.01]
    assert rows.loc[[plain.id, other.id], "series.loss"].tolist() == [0.1, 0.01]
    assert "config.only_on_rank_1" not in rows
    with capture_output(), pytest.raises(RankError, match="ZeroDivisionError"):
        shell.run_cell_magic("distributed_train", "--name early --config lr=0.01", f"1 / 0\n{CONFIGURED}")
    assert not any("has changed nothing" in notice for notice in RunStore().find("early").notices)
    _, listed = output_of(shell, "runs", "")
    assert "lr=0.01, bach=8, batch=64" in str(listed)
    assert listed.dataframe().set_index("id").loc[other.id, "config.lr"] == 0.01


def test_a_failed_training_cell_saves_its_picture_and_raises(shell):
    with capture_output() as captured, pytest.raises(RankError, match="ValueError: boom"):
        shell.run_cell_magic("distributed_train", "--name broken", "raise ValueError('boom')")
    assert captured.outputs
    with capture_output():
        assert isinstance(shell.run_cell("%%distributed\n1 / 0").error_in_exec, RankError)


def test_runs_are_listed_and_shown(shell):
    _, listed = output_of(shell, "runs", "")
    names = [info.name for info in listed.runs]
    assert {"first", "broken"} <= set(names)
    assert "first" in listed._repr_html_()
    captured, _ = output_of(shell, "runs", "show first")
    assert captured.outputs[0].data[RUN_TYPE]["run"] == next(info.id for info in listed.runs if info.name == "first")


def error_of(shell, cell):
    """Execute a notebook cell as JupyterLab does, and return its error and the error's traceback without colors."""
    with capture_output():
        error = shell.run_cell(cell, store_history=True).error_in_exec
    return error, re.sub(r"\x1b\[[0-9;]*m", "", getattr(error, "traceback", ""))


@pytest.mark.parametrize("magic", ["distributed", "distributed_train"])
def test_a_traceback_has_the_notebooks_numbers(shell, magic):
    number = shell.execution_count
    assert error_of(shell, "%%distributed\n\ndef divide():\n    return 1 / 0")[0] is None
    error, traceback = error_of(shell, f"%%{magic}\nx = 1\ndivide()")
    assert "ZeroDivisionError" in str(error)
    assert f"Cell In[{number + 1}], line 3" in traceback
    assert "----> 3 divide()" in traceback
    assert f"Cell In[{number}], line 4, in divide()" in traceback


def test_a_cell_that_misuses_prepare_or_report_names_the_remedy(shell):
    make = "import torch\nm = torch.nn.Linear(1, 1)\no = torch.optim.SGD(m.parameters(), 1)\n"
    error, _ = error_of(shell, f"%%distributed\n{make}m, o = fd.prepare(m, o)")
    assert "model, optimizer, _ = fd.prepare(model, optimizer)" in str(error)
    assert "the model is of type SGD" in str(error_of(shell, "%%distributed\nm, o, _ = fd.prepare(o, m)")[0])
    assert "write fd.report(**values)" in str(error_of(shell, "%%distributed_train\nfd.report({'loss': 1.0})")[0])


def test_logs_of_a_rank(shell):
    shell.run_cell_magic("distributed", "", "for i in range(10): print('line', i)")
    captured, _ = output_of(shell, "cluster", "logs 1 --lines 2")
    assert captured.stdout == "line 8\nline 9\n"


ONE_BY_ONE = """
import pathlib, time
import farandole as fd
step = 0
while not pathlib.Path(END).exists():
    print("step", step)
    fd.report(step=step, value=1.0)
    step += 1
    time.sleep(0.05)
fd.result(step)
"""


def test_a_detached_run_returns_immediately_and_can_be_waited_for(shell, tmp_path):
    end = tmp_path / "end"
    code = ONE_BY_ONE.replace("END", repr(str(end)))
    captured, _ = output_of(shell, "distributed_train", "--name apart --detach -o apart", code)
    assert RUN_TYPE in captured.outputs[0].data
    run = shell.user_ns["apart"]
    assert run.status is Status.RUNNING
    _, listed = output_of(shell, "runs", "")
    assert (listed.runs[0].id, listed.rows()[0][2]) == (run.id, "running (detached)")
    with pytest.raises(UsageError, match="is running another cell"):
        shell.run_cell_magic("distributed", "", "pass")
    with capture_output() as waited, pytest.raises(DeadlineError, match="it continues"):
        shell.run_line_magic("runs", "wait apart --timeout 0.5")
    end.touch()
    captured, _ = output_of(shell, "runs", "wait apart --timeout 60")
    assert run.status is Status.FINISHED
    assert f"step {min(run.results.values()) - 1}\n" in waited.stdout + captured.stdout
    assert "<svg" in str(captured.outputs[-1].data) or "image/svg+xml" in captured.outputs[-1].data
    assert len(load_run(run.id)) == sum(run.results.values())


def test_a_failed_detached_run_raises_when_waited_for(shell):
    output_of(shell, "distributed_train", "--name fails --detach", "raise ValueError('boom')")
    with capture_output(), pytest.raises(RankError, match="ValueError: boom"):
        shell.run_line_magic("runs", "wait fails --timeout 60")
    with capture_output(), pytest.raises(RankError, match="boom"):
        shell.run_line_magic("runs", "wait fails")


def test_a_detached_run_is_stopped(shell, tmp_path):
    code = ONE_BY_ONE.replace("END", repr(str(tmp_path / "never")))
    output_of(shell, "distributed_train", "--name endless --detach -o endless", code)
    captured, _ = output_of(shell, "runs", "stop endless")
    assert captured.stdout == f"run {shell.user_ns['endless'].id} is interrupted\n"
    output_of(shell, "distributed", "", "pass")


def test_a_missing_name_on_a_replaced_rank_names_the_remedy(shell):
    # With a new cluster, no rank has been replaced by an earlier test.
    output_of(shell, "cluster", "stop")
    output_of(shell, "cluster", START)
    error_of(shell, "%%distributed\nkept = 1")
    error, _ = error_of(shell, "%%distributed --ranks 1\nimport os\nos._exit(1)")
    assert isinstance(error, RankDiedError)
    error, _ = error_of(shell, "%%distributed\nkept")
    assert "name 'kept' is not defined. Rank 1 was started after earlier cells; run the cell" in str(error)
    error, _ = error_of(shell, "%%distributed\nnever")
    assert str(error).endswith("ranks 0-1: NameError: name 'never' is not defined")
