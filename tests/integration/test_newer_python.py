"""Tests for a driver on a newer minor version of Python than the ranks of a real hub, as on a laptop."""

import json
import platform

import pytest
from farandole import Cluster
from farandole.runs.store import RunStore
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from hub.process import wait_until
from tests.cells import train
from tests.clients import newer_python

pytestmark = pytest.mark.release

DEADLINE = 60
OURS = platform.python_version()
SHOW = "import platform\nprint(platform.python_version())"
DATA = """
import numpy as np, pandas as pd
data = {"text": "ä", "none": None, "numbers": [1, 2.5, 10**30], "set": {1, (2, 3)}}
small, large = np.arange(6.0).reshape(2, 3), np.arange(500_000)
table = pd.DataFrame({"n": [1, 2], "name": ["a", "b"], "day": pd.to_datetime(["2026-01-01", None])})
"""
CHANGE = """%%distributed
import farandole as fd
assert data == {"text": "ä", "none": None, "numbers": [1, 2.5, 10**30], "set": {1, (2, 3)}}
data["rank"] = fd.rank()
small, large = small * 2, large[::-1]
table["twice"] = table["n"] * 2
"""
COMPARE = """
assert data["rank"] == 1 and data["set"] == {1, (2, 3)}
np.testing.assert_array_equal(small, np.arange(6.0).reshape(2, 3) * 2)
np.testing.assert_array_equal(large, np.arange(500_000)[::-1])
assert list(table["twice"]) == [2, 4] and str(table["day"][0]) == "2026-01-01 00:00:00", table
"""
CODE = """
import dataclasses

def double(x):
    return 2 * x

class Net:
    def forward(self, x):
        return x

@dataclasses.dataclass
class Point:
    x: int = 0

net, point, small_lambda = Net(), Point(), lambda: 3
"""
NAMES = ["double", "Net", "net", "point", "small_lambda"]
LIVE = """
import farandole as fd, time
from pathlib import Path
mark = Path({mark!r})
deadline = time.monotonic() + 60
while not mark.exists():
    assert time.monotonic() < deadline, "the driver has not seen a report"
    fd.report(step=0, waiting=1.0)
    time.sleep(0.05)
"""
SEEN = """
import time
from pathlib import Path
deadline = time.monotonic() + 60
while not any(one.points for one in run.series()):
    assert time.monotonic() < deadline, "no report of the run has arrived"
    time.sleep(0.05)
assert run.status == "running", run.status
Path({mark!r}).touch()
run.wait(60)
"""
TAKE_OVER = """
from pathlib import Path
from farandole import Cluster
older = Cluster.attach("older")
[found] = older.background.values()
run = found.run
Path({mark!r}).touch()
run.wait(60)
"""
REPORT = """
import farandole as fd
for step in range(20):
    fd.report(step=step, loss=1 / (1 + step))
fd.result(step)
"""


class Notebook:
    """A kernel on the newer Python, with `farandole` from this checkout."""

    def __init__(self, folder, **environment):
        newer_python.install_checkout(folder / "site")
        python = newer_python.environment() / "bin" / newer_python.NAME
        variables = {"PYTHONPATH": str(folder / "site"), **environment}
        spec = {"argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"], "env": variables}
        (folder / "newer").mkdir()
        (folder / "newer/kernel.json").write_text(json.dumps({**spec, "display_name": "newer", "language": "python"}))
        specs = KernelSpecManager(kernel_dirs=[str(folder)])
        self._manager = KernelManager(kernel_name="newer", kernel_spec_manager=specs)

    def __enter__(self):
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE)
        return self

    def __exit__(self, *details):
        self._client.stop_channels()
        self._manager.shutdown_kernel()

    def run(self, code):
        """Run a cell and return its text. Raises AssertionError if it fails."""
        reply, text = self._execute(code)
        assert reply["status"] == "ok", text + reply["evalue"]
        return text

    def fail(self, code):
        """Run a cell that must fail, and return the name and the message of the error."""
        reply, text = self._execute(code)
        assert reply["status"] == "error", text
        return reply["ename"], reply["evalue"]

    def _execute(self, code):
        shown = []

        def show(message):
            content = message["content"]
            shown.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

        reply = self._client.execute_interactive(code, output_hook=show, timeout=DEADLINE, stop_on_error=False)
        return reply["content"], "".join(shown)


@pytest.fixture(scope="module")
def where(hub, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    return {"hub_url": hub.url, "token": hub.token_for("newton"), "store": store}


@pytest.fixture(scope="module")
def notebook(where, tmp_path_factory):
    hub = {"FARANDOLE_HUB_URL": where["hub_url"], "JUPYTERHUB_API_TOKEN": where["token"]}
    runs = {"FARANDOLE_RUNS": str(where["store"].folder)}
    with Notebook(tmp_path_factory.mktemp("newer"), **hub, **runs) as notebook:
        notebook.run("%load_ext farandole\n%cluster start 2 --backend torch")
        yield notebook
        notebook.run("%cluster stop")


def test_the_driver_is_newer_than_the_ranks(notebook):
    theirs = notebook.run(SHOW).strip()
    assert theirs.startswith("3.13.")
    assert notebook.run(f"%%distributed\n{SHOW}").splitlines()[1:] == [OURS]
    check = notebook.run("%cluster check").splitlines()
    versions = [line.split()[4] for line in check[2:5]]
    assert versions == [theirs, OURS, OURS]
    [note] = [line for line in check if line.startswith("python: ")]
    assert note.startswith(f"python: the notebook has {theirs}, ranks 0-1 have {OURS}. Cells travel as text")
    assert not [line for line in check if line.startswith("farandole: ")]


def test_data_goes_both_ways(notebook):
    notebook.run(DATA + "\n%push data, small, large, table")
    notebook.run(CHANGE)
    notebook.run("%pull data, small, large, table --rank 1")
    notebook.run(COMPARE)


def test_code_is_refused_both_ways_and_the_driver_lives(notebook):
    theirs = notebook.run(SHOW).strip()
    notebook.run(f"{CODE}\nkept = 7")
    notebook.run(f"%%distributed\n{CODE}")
    for name in NAMES:
        error, message = notebook.fail(f"%push {name}")
        assert error == "TransferError"
        assert f"functions and classes of Python {theirs} do not run on Python {OURS}" in message
        error, message = notebook.fail(f"%pull {name}")
        assert error == "TransferError"
        assert f"{name} of rank 0 cannot be used here: functions and classes of Python {OURS} do not run" in message
    assert notebook.run("print(kept)") == "7\n"


def test_a_run_has_live_metrics(notebook, tmp_path):
    mark = tmp_path / "seen"
    cell = LIVE.format(mark=str(mark)) + train()
    notebook.run(f"%%distributed_train --name newer --detach --output run\n{cell}")
    notebook.run(SEEN.format(mark=str(mark)))
    assert notebook.run("print(run.status, run.result[0])") == "finished 16\n"
    assert notebook.run("print((run.dataframe()['loss'] > 0).sum())") == "32\n"


def test_it_takes_over_the_run_of_an_older_driver(where, notebook, tmp_path):
    mark = tmp_path / "seen"
    older = Cluster.start(1, name="older", backend="none", **where)
    run = older.train(LIVE.format(mark=str(mark)) + REPORT, detach=True)
    wait_until(lambda: len(run.dataframe()) > 0, DEADLINE)
    older.close()
    notebook.run(TAKE_OVER.format(mark=str(mark)))
    assert notebook.run("print(run.id, run.status, run.result)").split() == [run.id, "finished", "19"]
    assert notebook.run("print((run.dataframe()['loss'] > 0).sum())") == "20\n"
    notebook.run("older.stop()")


def test_ranks_on_the_newer_python_run_functions_of_their_driver(tmp_path):
    with Notebook(tmp_path, FARANDOLE_RUNS=str(tmp_path / "runs")) as notebook:
        notebook.run("%load_ext farandole\n%cluster start --local --ranks 2 --backend none")
        names = ", ".join(NAMES)
        notebook.run(f"{CODE}\n%push {names}")
        shown = notebook.run("%%distributed\nimport sys\nprint(sys.version_info[:2], double(2), net.forward(3), point)")
        assert shown.splitlines()[1:] == ["(3, 13) 4 3 Point(x=0)"]
        notebook.run(f"%pull {names} --rank 1")
        assert notebook.run("print(double(2), point.x, small_lambda())") == "4 0 3\n"
        notebook.run(f"%%distributed_train --output run\n{REPORT}")
        assert notebook.run("print(run.status, run.result, len(run.dataframe()))") == "finished 19 40\n"
        assert "python: " not in notebook.run("%cluster check")
        notebook.run("%cluster stop")
