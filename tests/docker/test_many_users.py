"""Twenty users start servers at the same time. Some of them have the names of the hub's own services."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from hub.process import wait_until
from tests.docker.hub_api import STOP_SECONDS, HubApi
from tests.docker.probes import networks, reached
from tests.docker.stack import ADMIN

if TYPE_CHECKING:
    from tests.docker.stack import Stack

ODD = ["hub", "proxy", "engine", "postgres", "proxy-api", "state", "a.b", "a-b", "a_b", "a@b.org", "a+b", "zoë", "пётр"]
USERS = [*ODD, *(f"student{number}" for number in range(20 - len(ODD)))]


def home(details: dict[str, Any]) -> str:
    [name] = [mount["Name"] for mount in details["Mounts"] if mount["Destination"] == "/home/user"]
    return str(name)


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_twenty_users_start_at_once_isolated_and_nothing_remains(stack: Stack) -> None:
    admin = HubApi(stack, ADMIN)
    services = {name: stack.inspect(name)["Id"] for name in stack.containers(everything=True) if "-server-" not in name}
    others, networks_before = set(stack.containers()), user_networks(stack)
    assert admin.request("POST", "users", {"usernames": USERS}).status_code == 201
    with ThreadPoolExecutor(len(USERS)) as pool:
        ends = list(pool.map(lambda user: admin.start(user, profile="tiny"), USERS))
    assert [(user, end) for user, end in zip(USERS, ends, strict=True) if not end.get("ready")] == []

    names = sorted(set(stack.containers()) - others)
    details = {name: stack.inspect(name) for name in names}
    assert len(names) == len(USERS)
    assert len({tuple(networks(stack, name)) for name in names}) == len({home(each) for each in details.values()}) == 20
    assert all(len(each["NetworkSettings"]["Networks"]) == 1 for each in details.values())
    assert f"{stack.name}-state" not in {home(each) for each in details.values()}
    assert {name: stack.inspect(name)["Id"] for name in services} == services

    with admin.kernel("hub") as kernel:
        targets = [("hub", 8081), ("proxy", 8000), ("proxy", 8001), ("engine", 2375)]
        mine = set(networks(stack, f"{stack.name}-server-hub").values())
        targets += [(ip, 8888) for name in names for ip in networks(stack, name).values() if ip not in mine]
        assert reached(kernel, targets) == targets[:2]

    with ThreadPoolExecutor(len(USERS)) as pool:
        list(pool.map(lambda user: admin.stop(user, ""), USERS))
    wait_until(lambda: not set(stack.containers()) & set(names), STOP_SECONDS)
    wait_until(lambda: user_networks(stack) == networks_before, STOP_SECONDS)


def user_networks(stack: Stack) -> set[str]:
    return set(stack.docker("network", "ls", "--filter", f"name={stack.name}-user-", "--format", "{{.Name}}").split())
