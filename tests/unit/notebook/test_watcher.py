"""Tests that a cell shows its run once, and that only clients that are no page with notebooks get lines of progress."""

import pytest
from farandole.notebook import progress
from farandole.notebook.display import RUN_TYPE
from farandole.notebook.watcher import Watcher
from farandole.protocol import Status
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture(autouse=True)
def shell():
    """A shell, without which nothing is displayed."""
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def new_run(folder, cell=""):
    return Run(RunInfo(id="r", folder=folder, size=1, workers=("w",), cell=cell), "")


def texts(shown):
    return [output.data["text/plain"] for output in shown.outputs if RUN_TYPE in output.data]


def test_a_run_that_continues_without_its_kernel_leaves_no_final_picture(tmp_path):
    run = new_run(tmp_path)
    watcher = Watcher()
    with capture_output() as shown:
        refresh = watcher(run)
        watcher.finish()
    assert ["running" in text for text in texts(shown)] == [True]
    run.finish(Status.FINISHED)
    with capture_output() as shown:
        refresh()
        watcher.finish()
    assert ["finished" in text for text in texts(shown)] == [True]


@pytest.mark.parametrize(("cell", "lines", "printed"), [("", True, True), ("c-1", True, False), ("", False, False)])
def test_lines_are_for_cells_of_clients_that_are_no_page(tmp_path, monkeypatch, cell, lines, printed):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    with capture_output() as shown:
        Watcher(lines=lines)(new_run(tmp_path, cell))()
    assert ("Run r · running" in shown.stdout) is printed
