"""The hub in containers: training over two workers, limits, isolation, restarts."""

from __future__ import annotations

import json
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

PROBE = """
import socket
def reach(host, port):
    try:
        with socket.create_connection((host, port), 3):
            return True
    except OSError:
        return False
print([reach(host, port) for host, port in {targets!r}])
"""

REPORTING = """%%distributed_train -o run
import time, farandole as fd, torch, horovod.torch as hvd
for step in range(300):
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    fd.report(step=step, total=total)
    time.sleep(0.1)
fd.result(step)
"""


def addresses(stack: Stack, container: str) -> list[str]:
    return [network["IPAddress"] for network in stack.inspect(container)["NetworkSettings"]["Networks"].values()]


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


def test_a_container_has_no_more_rights_than_it_needs(stack: Stack) -> None:
    with stack.kernel("ada"):
        [name] = [name for name in stack.containers() if name.endswith("-ada")]
    host = stack.inspect(name)["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges" in "".join(host["SecurityOpt"])
    assert not host["Privileged"]
    assert docker("exec", name, "id", "-u") == "1000"
    mounts = [mount["Destination"] for mount in stack.inspect(name)["Mounts"]]
    assert not [where for where in mounts if "docker.sock" in where]


def test_no_user_reaches_another_users_ports(stack: Stack) -> None:
    with stack.kernel("ada") as ada, stack.kernel("grace") as grace:
        names = {user: f"{stack.name}-server-{user}" for user in ("ada", "grace")}
        where = {user: [(address, 8888) for address in addresses(stack, name)] for user, name in names.items()}
        assert ada.execute(PROBE.format(targets=where["grace"]), deadline=60).strip() == "[False]"
        assert grace.execute(PROBE.format(targets=where["ada"]), deadline=60).strip() == "[False]"
        assert ada.execute(PROBE.format(targets=where["ada"]), deadline=60).strip() == "[True]"


def test_the_engine_and_the_proxys_inner_side_are_out_of_reach(stack: Stack) -> None:
    targets = [
        *((address, 2375) for address in addresses(stack, f"{stack.name}-engine")),
        *((address, 8001) for address in addresses(stack, f"{stack.name}-proxy")),
        ("engine", 2375),
        ("proxy-api", 8001),
        ("proxy", 8001),
    ]
    with stack.kernel("ada") as ada:
        assert (
            ada.execute(PROBE.format(targets=[("proxy", 8000), ("hub", 8081)]), deadline=60).strip() == "[True, True]"
        )
        output = ada.execute(PROBE.format(targets=targets), deadline=120)
        assert json.loads(output.replace("F", "f").replace("T", "t")) == [False] * len(targets)
        assert ada.execute("import os; print(os.path.exists('/var/run/docker.sock'))", deadline=30).strip() == "False"


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
