"""The hub in containers: training on two workers, restarts of the hub, and homes that outlive containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.process import local_session, wait_until
from tests.cells import SUM
from tests.docker.stack import ADMIN, docker

if TYPE_CHECKING:
    from tests.docker.stack import Stack

CELL_SECONDS = 240.0
STOP_SECONDS = 180

ENOUGH = "/tmp/enough"
REPORTED = 20
REPORTING = f"""%%distributed_train -o run
import pathlib, time, farandole as fd, torch, horovod.torch as hvd
for step in range(6000):
    if hvd.allreduce(torch.tensor([float(pathlib.Path({ENOUGH!r}).exists())]), op=hvd.Sum).item():
        break
    fd.report(step=step)
    time.sleep(0.1)
fd.result(step)
"""
"""A cell that trains and reports each step until a rank finds the file `ENOUGH`."""

BEGIN_RUN = """
from farandole.runs.store import RunStore
print(RunStore().create(code="", backend="none", size=1, workers=["c-w0"], name="cut-off").id)
"""
"""A cell that begins a run, which never ends. It prints the id."""
DELETE = """
import os, time
from pathlib import Path
from farandole.runs.lifecycle.heartbeat import SIGNS, SILENT_SECONDS
from farandole.runs.store import RunStore
from farandole.server.panel.charts import Charts
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.runs import RunIndex
from farandole.server.panel.table.table import Table

def delete():
    try:
        Table(RunIndex(store.folder, Path.home()), Charts()).delete(info.id, ())
    except RefusedError as error:
        return error.code
    return "deleted"

store = RunStore()
info = store.find("cut-off")
print(info.status, delete())
then = time.time() - SILENT_SECONDS - 60
for name in SIGNS:
    if (info.folder / name).exists():
        os.utime(info.folder / name, (then, then))
print(store.find("cut-off").status, delete(), info.folder.exists())
"""
"""A cell that tries to delete the run, and deletes it as if its driver had been silent for a while."""

LONG_NAME = "ada.lovelace-of-the-analytical-engine"
OWN_ADDRESS = "import socket\nprint(socket.gethostbyname(socket.gethostname()))"
LOOK_UP = """
import socket, time
began = time.monotonic()
for peer in {peers}:
    socket.gethostbyaddr(peer)
print(f"{{time.monotonic() - began:.3f}}")
"""
ANSWER_SECONDS = 3


@pytest.mark.parametrize("backend", ["horovod", pytest.param("torch", marks=pytest.mark.release)])
def test_a_cell_trains_over_two_worker_containers(stack: Stack, backend: str) -> None:
    with stack.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute(f"%cluster start --workers 2 --backend {backend}", deadline=CELL_SECONDS)
        assert len(workers(stack, "ada")) == 2
        output = kernel.execute(f"%%distributed\n{SUM[backend]}", deadline=CELL_SECONDS)
        assert output.split()[1:3] + output.split()[-1:] == ["ranks", "0-1", "2"], output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    wait_until(lambda: not workers(stack, "ada"), STOP_SECONDS)


def workers(stack: Stack, user: str) -> list[str]:
    """Return the names of the containers of the user's workers."""
    return [name for name in stack.containers() if name.startswith(f"{stack.name}-server-{user}--")]


@pytest.mark.release
def test_ranks_of_a_user_with_a_long_name_find_each_other_immediately(stack: Stack) -> None:
    with stack.kernel(LONG_NAME) as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2 --backend torch", deadline=CELL_SECONDS)
        addresses = kernel.execute(f"%%distributed\n{OWN_ADDRESS}", deadline=CELL_SECONDS).split()
        peers = [word for word in addresses if word.count(".") == 3]
        assert len(peers) == 2
        # If a container's name is too long, each reverse lookup of its address times out after 10 s.
        output = kernel.execute(f"%%distributed\n{LOOK_UP.format(peers=peers)}", deadline=CELL_SECONDS)
        seconds = [float(word) for word in output.split() if "." in word]
        assert seconds
        assert max(seconds) < ANSWER_SECONDS
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


def test_training_continues_while_the_hub_is_killed_and_restarted(stack: Stack) -> None:
    with stack.kernel("emmy") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        worker = workers(stack, "emmy")[0]
        request = kernel.begin(REPORTING)
        wait_until(lambda: reported(stack, "emmy") >= REPORTED, CELL_SECONDS)
        docker("kill", f"{stack.name}-hub")
        before = reported(stack, "emmy")
        wait_until(lambda: reported(stack, "emmy") >= before + REPORTED, CELL_SECONDS)
        assert not stack.inspect(f"{stack.name}-hub")["State"]["Running"]
        docker("start", f"{stack.name}-hub")
        stack.wait_ready()
        docker("exec", worker, "touch", ENOUGH)
        kernel.finish(request, REPORTING, deadline=CELL_SECONDS)
        found = "print(run.status, sorted(set(run.dataframe().step)) == list(range(run.result)), run.result)"
        status, complete, steps = kernel.execute(found, deadline=60).split()
        assert (status, complete) == ("finished", "True")
        assert int(steps) >= before + REPORTED
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


def reported(stack: Stack, user: str) -> int:
    """Return the number of reports that rank 0 has written to disk in all runs of the user."""
    count = "cat /home/user/farandole/runs/*/metrics/rank-0.jsonl 2>/dev/null | wc -l"
    return int(docker("exec", f"{stack.name}-server-{user}", "sh", "-c", count))


def test_the_home_outlives_the_container(stack: Stack) -> None:
    with stack.kernel("ada") as kernel:
        kernel.execute("open('kept.txt', 'w').write('still here')", deadline=30)
    browser = stack.browser("ada")
    before = stack.inspect(f"{stack.name}-server-ada")["Id"]
    browser.stop_notebook()
    with stack.kernel("ada") as kernel:
        assert kernel.execute("print(open('kept.txt').read())", deadline=30).strip() == "still here"
    assert stack.inspect(f"{stack.name}-server-ada")["Id"] != before


def test_a_run_whose_container_is_gone_is_lost_after_a_while_and_can_be_deleted(stack: Stack) -> None:
    with stack.kernel("lise") as kernel:
        run = kernel.execute(BEGIN_RUN, deadline=60).strip()
    stack.browser("lise").stop_notebook()
    with stack.kernel("lise") as kernel:
        words = kernel.execute(DELETE, deadline=60).split()
        assert words == ["running", "runs_go_on", "lost", "deleted", "False"], (run, words)


def test_the_first_administrator_has_administrator_rights(stack: Stack) -> None:
    token = stack.browser(ADMIN).make_token()
    answer = local_session().get(f"{stack.url}/hub/api/users", headers={"Authorization": f"token {token}"}, timeout=30)
    assert {user["name"] for user in answer.json()} >= {ADMIN}
