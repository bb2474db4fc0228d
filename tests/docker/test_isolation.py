"""Tests what the programs in users' containers can reach, and what they can find out.

- The containers of a user reach each other, but no container of another user.
- Of the hub's services, containers reach only the public ports of the hub and the proxy.
- Containers have no access to the engine, no secrets of the hub, and no privileges.
- The token of a server gives no access to other users.
- If FARANDOLE_INTERNET is "no", containers reach neither the host nor a cloud's metadata service.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.docker.probes import LISTEN, LISTEN_PORT, host_addresses, listening_host, networks, reached
from tests.docker.stack import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.kernel import RemoteKernel
    from tests.docker.probes import Target
    from tests.docker.stack import Stack

CELL_SECONDS = 240.0
METADATA = [("169.254.169.254", 80), ("169.254.170.2", 80), ("168.63.129.16", 80), ("100.100.100.200", 80)]

ASK = """
import json, os, urllib.error, urllib.request
def status(method, url):
    request = urllib.request.Request(url, method=method, data=b"{{}}" if method == "POST" else None)
    request.add_header("Authorization", "token " + os.environ["JUPYTERHUB_API_TOKEN"])
    if "/user/" in url:
        request.add_header("Host", url.split("/")[4] + ".hub.localhost")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
print("ANSWERS", json.dumps([status(method, url) for method, url in {requests!r}]))
"""


@pytest.fixture(scope="module")
def grace(stack: Stack) -> Iterator[RemoteKernel]:
    """Yield the kernel of a second user, whose notebook server and worker listen on `LISTEN_PORT`."""
    with stack.kernel("grace") as kernel:
        lead(kernel, workers=1)
        kernel.execute(LISTEN, deadline=60)
        kernel.execute(f"%%distributed\n{LISTEN}", deadline=CELL_SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Iterator[RemoteKernel]:
    """Yield the kernel of a user whose notebook server and two workers listen on `LISTEN_PORT`."""
    with stack.kernel("ada") as kernel:
        lead(kernel, workers=2)
        kernel.execute(LISTEN, deadline=60)
        kernel.execute(f"%%distributed\n{LISTEN}", deadline=CELL_SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


def lead(kernel: RemoteKernel, workers: int) -> None:
    kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
    kernel.execute(f"%cluster start --workers {workers} --backend torch", deadline=CELL_SECONDS)


def containers(stack: Stack, user: str) -> list[str]:
    """Return the user's containers, with the notebook server first."""
    notebook = f"{stack.name}-server-{user}"
    found = [name for name in stack.containers() if name == notebook or name.startswith(f"{notebook}--")]
    assert found[0] == notebook, found
    return found


def ports(stack: Stack, names: list[str]) -> list[Target]:
    found = [address for name in names for address in networks(stack, name).values()]
    return [(address, port) for address in found for port in (8888, LISTEN_PORT)]


def test_a_users_containers_reach_each_other(stack: Stack, ada: RemoteKernel) -> None:
    own = ports(stack, containers(stack, "ada"))
    assert len(own) == 6
    assert reached(ada, own) == own
    for rank in (0, 1):
        assert reached(ada, own, rank=rank) == own


def test_no_user_reaches_another_user(stack: Stack, ada: RemoteKernel, grace: RemoteKernel) -> None:
    of_ada, of_grace = (ports(stack, containers(stack, user)) for user in ("ada", "grace"))
    assert (len(of_ada), len(of_grace)) == (6, 4)
    assert reached(ada, of_grace) == reached(ada, of_grace, rank=1) == []
    assert reached(grace, of_ada) == reached(grace, of_ada, rank=0) == []


@pytest.mark.parametrize("rank", [None, 0], ids=["notebook", "worker"])
def test_only_the_public_ports_of_the_hubs_parts_are_reachable(
    stack: Stack, ada: RemoteKernel, rank: int | None
) -> None:
    public = [("hub", 8081), ("proxy", 8000)]
    inner = [(name, port) for name in ("engine", "proxy-api", "postgres", "tls") for port in (2375, 8001, 5432, 8443)]
    [mine] = networks(stack, f"{stack.name}-server-ada")
    for service in ("engine", "proxy", "hub"):
        for network, address in networks(stack, f"{stack.name}-{service}").items():
            inner += [(address, port) for port in (2375, 8001, *(() if network == mine else (8000, 8081)))]
    assert reached(ada, public + inner, rank=rank) == public


def test_no_engine_and_no_secret_is_inside(stack: Stack, ada: RemoteKernel) -> None:
    settings = [line.partition("=") for line in (stack.folder / ".env").read_text().splitlines()]
    secrets = [value for key, _, value in settings if key.endswith(("_TOKEN", "_SECRET"))]
    for name in containers(stack, "ada"):
        found = stack.inspect(name)
        assert not [mount for mount in found["Mounts"] if "docker" in mount["Source"] and mount["Type"] != "volume"]
        assert not [line for line in found["Config"]["Env"] if any(s and s in line for s in secrets)]
        assert not [line for line in found["Config"]["Env"] if stack.passwords[ADMIN] in line]
        assert stack.docker("exec", name, "find", "/run/", "/var/run/", "-name", "docker*") == ""
        assert stack.docker("exec", name, "id", "-u") == "1000"
        host = found["HostConfig"]
        assert (host["CapDrop"], host["Privileged"]) == (["ALL"], False)
        assert "no-new-privileges" in "".join(host["SecurityOpt"])


def test_a_servers_token_reveals_nothing_about_others(stack: Stack, ada: RemoteKernel, grace: RemoteKernel) -> None:
    hub, proxy = "http://hub:8081/hub/api", "http://proxy:8000"
    refused = [
        ("GET", f"{hub}/users/grace"),
        ("POST", f"{hub}/users/grace/tokens"),
        ("POST", f"{hub}/users/grace/server"),
        ("POST", f"{hub}/users/grace/servers/main-w0"),
        ("DELETE", f"{hub}/users/grace/server"),
        ("POST", f"{hub}/users/eve"),
        ("POST", f"{hub}/users/ada/tokens"),
        ("GET", f"{hub}/groups"),
        ("GET", f"{hub}/services"),
        ("GET", f"{hub}/proxy"),
        ("POST", f"{hub}/shutdown"),
        ("GET", f"{proxy}/user/grace/api/kernels"),
        ("GET", f"{proxy}/user/grace/api/contents"),
    ]
    own = [("GET", f"{hub}/users"), ("GET", f"{hub}/users/ada"), ("GET", f"{proxy}/user/ada/api/kernels")]
    for rank in (None, 0):
        magic = "" if rank is None else f"%%distributed --ranks {rank}\n"
        output = ada.execute(magic + ASK.format(requests=refused + own).lstrip(), deadline=120)
        answers = json.loads(output[output.index("[[") : output.rindex("]]") + 2])
        assert [request for request, (status, _) in zip(refused, answers, strict=False) if status < 400] == []
        (listed, users), (status, user), (at_notebook, _) = answers[len(refused) :]
        assert listed == 403 or [each["name"] for each in json.loads(users)] == ["ada"]
        assert status == 200
        if rank is None:
            assert at_notebook == 200
        else:
            assert at_notebook == 403
            assert "servers" not in json.loads(user), user


def test_without_internet_neither_the_host_nor_metadata_is_reached(closed_stack: Stack) -> None:
    with closed_stack.kernel(ADMIN) as kernel, listening_host() as port:
        [name] = closed_stack.containers()
        host = [(address, port) for address in host_addresses(closed_stack, name)]
        # This machine has no metadata service. Containers can reach its addresses only through the host, so if they
        # cannot reach the host, they cannot reach a metadata service either.
        assert reached(kernel, [*METADATA, *host, ("proxy", 8000)]) == [("proxy", 8000)]
