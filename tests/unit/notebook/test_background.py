"""Tests for what `%runs wait` prints while it waits for a run in the background."""

import asyncio
import threading

import pytest
from farandole.driver.cells.background import BackgroundRun
from farandole.driver.kernels.replies import Reply
from farandole.notebook import background, progress
from farandole.notebook.background import wait_for
from farandole.protocol import Status
from farandole.runs.origin import Origin
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

SECONDS = 30


@pytest.fixture(autouse=True)
def shell():
    """A shell, without which nothing is displayed."""
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


class Cell:
    """A background run that ends when the test sets `may_end`."""

    def __init__(self, folder):
        self.store = RunStore(folder)
        self.run = self.store.create(code="x", backend="none", size=1, workers=["c-w0"], name="digits")
        self.background = BackgroundRun(self.run)
        self.may_end = threading.Event()

    async def work(self):
        assert await asyncio.to_thread(self.may_end.wait, SECONDS)
        return [Reply(rank=0, worker="c-w0", status="ok", ended=0.0)]

    async def waited_for(self):
        await self.background.begin(self.work(), check=lambda *_: None, fail=lambda *_: None)
        running = {self.run.id: self.background}
        await asyncio.to_thread(wait_for, self.store, running, self.run.id, SECONDS)


@pytest.mark.parametrize("client", ["", "c-1"])
def test_only_a_client_that_is_no_page_gets_lines_while_it_waits(tmp_path, monkeypatch, client):
    cell, calls, show = Cell(tmp_path), [], BackgroundRun.show

    def counted(self, printer):
        """Show output. The first line of progress is printed between the first call and the second one."""
        show(self, printer)
        calls.append(printer)
        if len(calls) == 2:
            cell.may_end.set()

    monkeypatch.setattr(BackgroundRun, "show", counted)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(background, "origin", lambda: Origin(cell=client))
    with capture_output() as printed:
        asyncio.run(cell.waited_for())
    assert cell.run.status is Status.FINISHED
    assert (f"Run digits ({cell.run.id}) · running" in printed.stdout) is (client == "")
