"""Makes the fixtures in this folder with the code of an old commit. fixtures/README.md has the commands.

The script imports the modules of that commit and starts six runs on the workers of a real hub. Two runs finish, two
fail, and the drivers of the last two are killed.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole import Cluster, load_run
from farandole.exceptions import NoClusterError
from jupyter_client.manager import KernelManager

from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path.home()
RUNS = HOME / "farandole" / "runs"
USER = "ada"
PATIENCE = 120

REPORTS = """
import time
import farandole as fd
for step in range(6):
    loss = float("nan") if step == 3 else 1 / (1 + step)
    fd.report(step=step, epoch=step // 3, loss=loss, rank_loss=loss + fd.rank())
    print("step", step, "on rank", fd.rank())
print("no newline at the end", end="")
time.sleep(2.5)  # long enough for a record of what the rank uses
fd.result({"rank": fd.rank(), "losses": [1.0, 0.5], "nothing": None})
"""

FAILS = """
import farandole as fd
fd.report(step=0, loss=2.0)
print("about to fail")
if fd.rank() == 1:
    raise ValueError("the loss of rank 1 is out of range")
"""

TRAINS = (Path(__file__).parent / "training_cell.txt").read_text(encoding="utf-8")

GOES_ON = """
import time
from pathlib import Path
import farandole as fd
for step in range(12):
    print("line", step)
    fd.report(step=step, value=step * 0.5)
    if step == 7:
        print("half of a line, ", end="", flush=True)
        while not Path("END").exists():
            time.sleep(0.05)
        print("and the other half")
fd.result(12 + fd.rank())
"""

GOES_ON_ELASTIC = """
import time
from pathlib import Path
import farandole as fd
state = fd.state(step=0)
@fd.elastic
def train(state):
    while state.step < 12:
        state.step += 1
        fd.report(step=state.step, size=fd.size())
        print("line", state.step)
        state.commit()
        while state.step == 7 and not Path("END").exists():
            time.sleep(0.05)
train(state)
fd.result(state.step)
"""


class Notebook:
    """A kernel that leads clusters with the magics. It receives the same requests that JupyterLab would send."""

    def __init__(self, hub: RunningHub, name: str) -> None:
        self._manager = KernelManager(kernel_name="python3")
        hubs = {"JUPYTERHUB_API_TOKEN": hub.token_for(USER), "FARANDOLE_HUB_URL": hub.url}
        path = str(HOME / "course" / f"{name}.ipynb")
        self._manager.start_kernel(env={**os.environ, **hubs, "JPY_SESSION_NAME": path}, cwd=str(HOME))
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)
        self._cells = 0
        self.run("%load_ext farandole")

    def run(self, code: str, *, fails: bool = False) -> None:
        """Execute a cell and wait for it. Exit if the cell fails, or if ``fails`` is true and it succeeds."""
        self._cells += 1
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        message = self._client.session.msg("execute_request", content, metadata={"cellId": f"cell-{self._cells}"})
        self._client.shell_channel.send(message)
        reply = self._reply(message["header"]["msg_id"])
        if (reply["status"] == "error") != fails:
            raise SystemExit(f"{code}\n{reply.get('ename')}: {reply.get('evalue')}")

    def _reply(self, request: str) -> dict[str, Any]:
        while True:
            message = self._client.get_shell_msg(timeout=PATIENCE)
            if message["parent_header"]["msg_id"] == request:
                return message["content"]

    def end(self) -> None:
        """Kill the kernel, so that it cannot clean up."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def wait_until(is_so: Any) -> None:
    """Wait until a condition is true. Exit if this takes longer than `PATIENCE`."""
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > give_up:
            raise SystemExit("the expected condition was not met in time")
        time.sleep(0.05)


def lead_to_the_end(hub: RunningHub) -> None:
    """Make the four runs whose driver lives until they end."""
    notebook = Notebook(hub, "digits")
    notebook.run("%cluster start --workers 2 --name digits --backend torch")
    notebook.run(f"%%distributed_train --name reports\n{REPORTS}")
    notebook.run(f"%%distributed_train --name fails\n{FAILS}", fails=True)
    notebook.run(f"%%distributed_train --name whole --elastic\n{TRAINS.replace('FAULT', 'pass')}")
    fault = "if state.step == 6: raise ValueError('enough')"
    notebook.run(f"%%distributed_train --name broken --elastic\n{TRAINS.replace('FAULT', fault)}", fails=True)
    _keep_checkpoints_of("broken")
    notebook.end()


def _keep_checkpoints_of(name: str) -> None:
    """Remove the checkpoints of all other runs, because each checkpoint takes at least 30 KB."""
    for folder in RUNS.glob("2*"):
        if json.loads((folder / "run.json").read_text())["name"] != name:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)


@contextmanager
def lost(hub: RunningHub, name: str, options: str, code: str, reports: int) -> Iterator[None]:
    """Make a run whose driver is killed. The workers save their journals in the run's folder when they stop.

    The body of the ``with`` statement runs after the run has ended and before its workers are stopped.
    """
    (HOME / "end").unlink(missing_ok=True)
    notebook = Notebook(hub, name)
    try:
        notebook.run(f"%cluster start --workers 2 --name {name} --backend torch")
        notebook.run(f"%%distributed_train --name {name} --detach {options}\n{code.replace('END', str(HOME / 'end'))}")
        folder = newest(name)
        wait_until(lambda: all((folder / f"metrics/rank-{rank}.jsonl").exists() for rank in range(2)))
        wait_until(lambda: len(load_run(name)) == reports)
        wait_until(lambda: all(path.stat().st_size > 50 for path in folder.glob("logs/*")))
        time.sleep(1)  # view.json is written at most once a second
    finally:
        notebook.end()
    (HOME / "end").touch()
    token = hub.token_for(USER)
    wait_until(lambda: all(_has_ended(hub, token, f"{name}-w{number}") for number in range(2)))
    yield
    Cluster.stop_named(name, hub_url=hub.url, token=token)
    wait_until(lambda: len(list(folder.glob("records/[!.]*.json"))) == 2)


def _has_ended(hub: RunningHub, token: str, worker: str) -> bool:
    answer = hub.api(token, "GET", f"/user/{USER}/{worker}/farandole/records").json()
    return all(record["ended"] for record in answer["records"])


def newest(name: str) -> Path:
    """Return the folder of the newest run. Check that the run is called ``name``."""
    folder = max(RUNS.glob("2*"))
    assert json.loads((folder / "run.json").read_text())["name"] == name
    return folder


def dump(database: Path, target: Path) -> None:
    """Write the database of a hub as SQL, without its servers' tokens and its OAuth clients' secrets.

    The process ids of the servers are replaced with ids that no system assigns. Otherwise a hub that starts on this
    database might stop an unrelated process.
    """
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as original:
            original.backup(copy)
        copy.execute("DELETE FROM api_tokens WHERE user_id IS NULL OR note IS NULL OR note NOT LIKE '%farandole%'")
        copy.execute("DELETE FROM oauth_codes")
        copy.execute("UPDATE oauth_clients SET secret = ''")
        copy.execute("UPDATE spawners SET state = json_object('pid', 4194304 + id)")
        copy.commit()
        text = "".join(f"{line}\n" for line in copy.iterdump())
    target.write_text(text.replace(str(Path(sys.executable).parent), str(HOME / "bin")), encoding="utf-8")


def main(target: Path) -> None:
    """Make all fixtures in the folder ``target``."""
    with run_hub(HOME / "hub") as hub:
        hub.start_notebook(USER, "cpu-2")
        hub.start_notebook("grace")
        lead_to_the_end(hub)
        with lost(hub, "lost", "", GOES_ON, 16):
            pass
        with lost(hub, "lost-elastic", "--elastic --lr-rule linear", GOES_ON_ELASTIC, 14):
            target.mkdir(parents=True, exist_ok=True)
            dump(hub.state / "jupyterhub.sqlite", target / "jupyterhub.sql")
        try:
            Cluster.stop_named("digits", hub_url=hub.url, token=hub.token_for(USER))
        except NoClusterError:
            raise SystemExit("the cluster of the completed runs is gone") from None
    shutil.copytree(RUNS, target / "runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
