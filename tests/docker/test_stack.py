"""The hub in containers: training over two workers, limits, isolation, restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hub.process import local_session, wait_until
from tests.cells import SUM
from tests.docker.stack import ADMIN, docker

if TYPE_CHECKING:
    from tests.docker.stack import Stack

CELL_SECONDS = 240.0
STOP_SECONDS = 60

REPORTING = """%%distributed_train -o run
import time, farandole as fd, torch, horovod.torch as hvd
for step in range(300):
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    fd.report(step=step, total=total)
    time.sleep(0.1)
fd.result(step)
"""


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_a_cell_trains_over_two_worker_containers(stack: Stack, backend: str) -> None:
    with stack.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute(f"%cluster start --workers 2 --backend {backend}", deadline=CELL_SECONDS)
        workers = [name for name in stack.containers() if "--" in name]
        assert len(workers) == 2
        output = kernel.execute(f"%%distributed\n{SUM[backend]}", deadline=CELL_SECONDS)
        assert output.split()[1:3] + output.split()[-1:] == ["ranks", "0-1", "2"], output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    wait_until(lambda: not [name for name in stack.containers() if "--" in name], STOP_SECONDS)


def test_training_goes_on_while_the_hub_is_killed_and_restarted(stack: Stack) -> None:
    with stack.kernel("emmy") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        request = kernel.begin(REPORTING)
        time.sleep(5)
        docker("kill", f"{stack.name}-hub")
        docker("start", f"{stack.name}-hub")
        stack.wait_ready()
        kernel.finish(request, REPORTING, deadline=CELL_SECONDS)
        output = kernel.execute("print(run.status, run.result, run.dataframe().step.max())", deadline=60)
        assert output.split() == ["finished", "299", "299"], output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


def test_the_home_outlives_the_container(stack: Stack) -> None:
    with stack.kernel("ada") as kernel:
        kernel.execute("open('kept.txt', 'w').write('still here')", deadline=30)
    browser = stack.browser("ada")
    before = stack.inspect(f"{stack.name}-server-ada")["Id"]
    browser.stop_notebook()
    with stack.kernel("ada") as kernel:
        assert kernel.execute("print(open('kept.txt').read())", deadline=30).strip() == "still here"
    assert stack.inspect(f"{stack.name}-server-ada")["Id"] != before


def test_the_first_administrator_may_administrate(stack: Stack) -> None:
    token = stack.browser(ADMIN).make_token()
    answer = local_session().get(f"{stack.url}/hub/api/users", headers={"Authorization": f"token {token}"}, timeout=30)
    assert {user["name"] for user in answer.json()} >= {ADMIN}
