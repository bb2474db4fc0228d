"""Tests that a cell leaves the static picture of its run only if the run has ended."""

from types import SimpleNamespace

import pytest
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


def pictures(watcher):
    with capture_output() as shown:
        watcher.leave_picture()
    return [sorted(output.data) for output in shown.outputs]


def test_a_run_that_continues_without_its_kernel_leaves_no_picture(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("w",)), "")
    watcher = Watcher(SimpleNamespace(interrupt=None))
    with capture_output():
        watcher(run)
    assert pictures(watcher) == []
    run.finish(Status.FINISHED)
    [[*kinds]] = pictures(watcher)
    assert "text/html" in kinds
