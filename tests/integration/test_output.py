"""Tests that the output of libraries on real ranks is shown live, in place and completely, and how cells may exit."""

import time

import nbformat
import pytest
from farandole import Cluster
from farandole.exceptions import RankError
from farandole.notebook.display import RUN_TYPE
from farandole.protocol import Status
from farandole.runs.store import RunStore
from farandole.runs.view import view_of
from nbclient import NotebookClient

from tests.cells import text

TQDM = """
import time
from tqdm import tqdm
for epoch in tqdm(range(2), desc="epoch"):
    for batch in tqdm(range(10), desc="batch", mininterval=0):
        time.sleep(0.05)
print("after")
"""
FRAMES = """
import sys
for frame in range(20_000):
    sys.stderr.write(f"\\r{frame:6} " + "#" * 100)
print(file=sys.stderr, flush=True)
print("after")
"""
REPLACED = """
import time
from IPython.display import HTML, display
from tqdm.notebook import tqdm
for batch in tqdm(range(20), desc="bar"):
    time.sleep(0.02)
table = display(HTML("<b>row 0</b>"), display_id=True)
for row in range(1, 5):
    table.update(HTML(f"<b>row {row}</b>"))
    time.sleep(0.05)
"""
CLEARED = """
import time
from IPython.display import clear_output
for step in range(5):
    clear_output(wait=True)
    print("step", step)
    time.sleep(0.05)
"""
NESTED = """
import time
import farandole as fd
for epoch in fd.track(range(4), "epochs"):
    for batch in fd.track(range(100), "batches"):
        if batch == 10:
            break
        time.sleep(0.1)
"""
TWICE = """
import os, signal, threading, time
import farandole as fd
if fd.rank() == 1:
    raise ValueError("boom")
try:
    time.sleep(100)
finally:
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
"""


CHILD = "import os\nos.system('echo from a child')"
C_CODE = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'from C')\nlibc.fflush(None)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


def test_prints_after_many_frames_of_a_progress_bar_are_shown(cluster):
    blocks = cluster.run(FRAMES)
    assert text(blocks) == f" 19999 {'#' * 100}\nafter\n"
    assert "more characters are not shown" not in text(blocks)


def test_nested_bars_are_shown_while_they_move_and_leave_one_line_each(cluster):
    began, live, lines = time.monotonic(), [], []

    def show(block):
        if block.display:
            live.append((time.monotonic() - began, block.bundle["text/plain"]))
        else:
            lines.extend(block.text.splitlines())

    cluster.run(TQDM, show=show)
    ended = time.monotonic() - began
    assert live[0][0] < ended - 0.5
    assert any("rank 0" in shown and "rank 1" in shown and "batch" in shown for _, shown in live)
    assert live[-1][1] == ""
    # Bars of both ranks with the same speed are one line.
    assert 2 <= sum("batch: 100%" in line for line in lines) <= 4
    assert 1 <= sum("epoch: 100%" in line for line in lines) <= 2
    assert [line for line in lines if "100%" not in line] == ["after"]


def test_widgets_displays_and_cleared_output_show_their_last_state(cluster):
    blocks = cluster.run(REPLACED)
    for rank in (0, 1):
        bar, table = [block.bundle for block in blocks if block.ranks == (rank,)]
        assert bar["text/plain"].startswith("bar: 100%|██████████| 20/20")
        assert table["text/html"] == "<b>row 4</b>"
    assert {block.bundle["text/plain"] for block in cluster.run(CLEARED)} == {"step 4"}


def test_the_log_of_a_run_contains_every_frame(cluster):
    run = cluster.train(FRAMES, name="frames")
    assert (run.folder / "logs/rank-0.log").read_bytes().count(b"\r") == 20_000
    assert run.ranks()[0].log.lines() == [f" 19999 {'#' * 100}", "after"]
    assert cluster.logs(0, lines=2) == f" 19999 {'#' * 100}\nafter"


@pytest.mark.parametrize("exit_", ["sys.exit(0)", "sys.exit()", "argparse.ArgumentParser().parse_args(['--help'])"])
def test_a_successful_exit_is_a_finished_run(cluster, exit_):
    run = cluster.train(f"import argparse, sys\nprint('before')\n{exit_}\nprint('after')")
    assert run.status is Status.FINISHED
    assert "after" not in run.ranks()[0].log.lines()
    assert "To exit" not in "\n".join(run.ranks()[0].log.lines())


def test_an_exit_with_a_message_is_its_error(cluster):
    with pytest.raises(RankError, match=r"failed on ranks 0-1: SystemExit: no data"):
        cluster.train("import sys\nsys.exit('no data')")
    with pytest.raises(RankError, match=r"failed on ranks 0-1: SystemExit: 3"):
        cluster.run("import sys\nsys.exit(3)")


def test_a_released_rank_shows_nothing_above_the_error_of_the_rank_that_failed(cluster):
    # The second interrupt may also arrive while the rank leaves its world, which the next cell then forms again.
    for _ in range(3):
        shown = []
        with pytest.raises(
            RankError, match=r"rank 1 .*: ValueError: boom\nrank 0 waited for it and was released"
        ) as error:
            cluster.run(TWICE, show=shown.append)
        assert "KeyboardInterrupt" not in text(shown) + error.value.traceback
        assert "KeyboardInterrupt" not in str(error.value)


def test_a_file_runs_with_its_arguments_and_its_tracebacks_name_it(cluster):
    code = (
        "import argparse, sys\nparser = argparse.ArgumentParser()\nparser.add_argument('--epochs', type=int)\n"
        "epochs = parser.parse_args().epochs\nprint(__name__, __file__, epochs)\n"
        "if epochs == 3:\n    raise ValueError('boom')  # the line\nsys.exit(0)\n"
    )
    run = cluster.train(code, options={"script": ["/there/train.py", "--epochs", "2"]})
    assert run.ranks()[1].log.lines() == ["__main__ /there/train.py 2"]
    assert (run.folder / "code.py").read_text() == code
    with pytest.raises(RankError, match="ValueError: boom") as error:
        cluster.train(code, options={"script": ["/there/train.py", "--epochs", "3"]})
    assert "/there/train.py" in error.value.traceback
    assert "# the line" in error.value.traceback
    assert "run_script" not in error.value.traceback


def test_a_run_in_the_background_keeps_only_the_last_state_of_its_bars(cluster):
    background = cluster.background[cluster.train(TQDM, detach=True).id]
    background.run.wait(60)
    blocks = []
    background.wait(blocks.append, 60)
    assert len([block for block in blocks if block.display]) == 1
    assert "after\n" in text(blocks)


@pytest.mark.parametrize("code", [CHILD, C_CODE])
def test_a_cell_shows_all_output_of_its_child_processes_and_of_c_code(tmp_path, monkeypatch, code):
    # ipykernel does not redirect the file descriptors of a process that pytest has started.
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with Cluster.start(local=True, ranks=2, backend="none", name="child", store=RunStore(tmp_path)) as cluster:
        for _ in range(50):
            assert {rank for block in cluster.run(code) if "from" in block.text for rank in block.ranks} == {0, 1}


def test_a_run_with_nested_loops_knows_about_how_long_it_still_takes(cluster):
    run = cluster.train(NESTED, detach=True)
    views = []
    while not run.info.status.ended:
        views.append(view_of(run, time.time()))
        time.sleep(0.1)
    assert run.wait(60).status is Status.FINISHED
    left = [view["seconds_left"] for view in views if view["seconds_left"] is not None]
    assert left[0] > left[-1] >= 0
    assert {bar["name"] for bar in views[-1]["progress"]} <= {"epochs", "batches"}
    assert view_of(run, time.time())["seconds_left"] is None


def test_a_client_that_is_no_page_gets_lines_of_progress_and_one_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "train.py").write_text(
        "import sys, time, farandole as fd\nfor step in fd.track(range(30), 'steps'):\n"
        "    fd.report(step=step, loss=1.0)\n    time.sleep(0.1)\nprint('arguments', sys.argv[1:])\n"
    )
    cells = [
        "%load_ext farandole\n%cluster start --local --ranks 2 --backend none",
        "from farandole.notebook import progress\nprogress.FIRST_SECONDS = 0.5",
        "%distributed_train --name lines train.py --epochs 3",
        "%cluster stop",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[2].outputs
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    [picture] = [output.data for output in outputs if "data" in output]
    assert set(picture) == {RUN_TYPE, "text/html", "image/svg+xml", "text/plain"}
    assert picture["text/plain"].startswith("Run lines (")
    assert "finished" in picture["text/plain"]
    assert " · running · 0:0" in printed
    assert "steps " in printed
    assert "loss 1" in printed
    assert "arguments ['--epochs', '3']" in printed
