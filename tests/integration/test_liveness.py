"""Tests that a rank whose process is suspended is reported but not killed in a run that is not elastic."""

import functools
import os
import signal

from farandole import Cluster
from farandole.driver.core import core
from farandole.driver.kernels.liveness import Liveness
from farandole.protocol import Status
from farandole.runs.store import RunStore

from hub.process import wait_until

PATIENCE = 120
CELL = """
import os, pathlib, time
import farandole as fd
marks = pathlib.Path({marks!r})
(marks / f"pid-{{fd.rank()}}.new").write_text(str(os.getpid()))
(marks / f"pid-{{fd.rank()}}.new").rename(marks / f"pid-{{fd.rank()}}")
deadline = time.monotonic() + 300
while not (marks / "end").exists() and time.monotonic() < deadline:
    time.sleep(0.1)
"""


def test_a_stopped_process_is_reported_and_may_continue(tmp_path, monkeypatch):
    monkeypatch.setattr(core, "Liveness", functools.partial(Liveness, seconds=6))
    with Cluster.start(local=True, ranks=2, backend="torch", store=RunStore(tmp_path / "runs")) as cluster:
        run = cluster.train(CELL.format(marks=str(tmp_path)), detach=True)
        wait_until((tmp_path / "pid-1").exists, PATIENCE)
        pid = int((tmp_path / "pid-1").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: run.notices, PATIENCE)
        finally:
            os.kill(pid, signal.SIGCONT)
        silent = "rank 1 (worker main-w0) has not answered for 6 s: it hangs, its process is stopped"
        assert any(notice.startswith(silent) for notice in run.notices), run.notices
        wait_until(lambda: "rank 1 (worker main-w0) answers again" in run.notices, PATIENCE)
        assert [notice.startswith(silent) for notice in run.info.warnings] == [True]
        (tmp_path / "end").touch()
        assert run.wait(PATIENCE).status is Status.FINISHED
