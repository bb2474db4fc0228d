"""The filter in front of a real engine. The tests use it through the Python client, as the hub does."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import docker
import pytest
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, IPAMConfig, IPAMPool, Mount

from hub.process import wait_until
from spawner_config.local import free_port
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IMAGE = "debian:bookworm-slim"
SUBNET = "10.214.240.0/26"
START_SECONDS = 20
UNPRIVILEGED = "1000"


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.APIClient]:
    """Yield a client for the engine itself, without the filter."""
    client = docker.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture(scope="module")
def name() -> str:
    return f"farandole-test-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def hub(name: str, engine: docker.APIClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[docker.APIClient]:
    """Yield a client that uses the engine through the filter, as the hub does."""
    port = free_port()
    log = tmp_path_factory.mktemp("filter") / "log"
    with filtered(name, port, log):
        client = docker.APIClient(base_url=f"tcp://127.0.0.1:{port}", version="auto")
        yield client
        client.close()
    remove_all(engine, name)


@contextmanager
def filtered(name: str, port: int, log: Path) -> Iterator[None]:
    environ = {
        **os.environ,
        "FARANDOLE_NAME": name,
        "FARANDOLE_ENGINE_HOST": "127.0.0.1",
        "FARANDOLE_ENGINE_PORT": str(port),
        "FARANDOLE_ALLOWED_IMAGES": "debian:*",
        "FARANDOLE_SUBNETS": SUBNET,
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hub.engine_filter"], cwd=ROOT, env=environ, stdout=out, stderr=out
        )
    try:
        wait_until(lambda: listens(port), START_SECONDS)
        yield
    finally:
        process.terminate()
        assert process.wait(START_SECONDS) == 0, log.read_text()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def remove_all(engine: docker.APIClient, name: str) -> None:
    """Remove all objects with the hub's label, so that nothing remains after the tests."""
    ours = {"label": f"farandole.hub={name}"}
    for container in engine.containers(all=True, filters=ours):
        engine.remove_container(container["Id"], force=True, v=True)
    for network in engine.networks(filters=ours):
        engine.remove_network(network["Id"])
    for volume in engine.volumes(filters=ours)["Volumes"] or []:
        engine.remove_volume(volume["Name"])


@pytest.fixture(scope="module")
def network(hub: docker.APIClient, name: str) -> str:
    network = f"{name}-user-ann"
    pool = IPAMPool(subnet=SUBNET)
    hub.create_network(network, driver="bridge", check_duplicate=True, ipam=IPAMConfig(pool_configs=[pool]))
    return network


@pytest.fixture
def create(hub: docker.APIClient, engine: docker.APIClient, network: str) -> Iterator[Callable[..., str]]:
    """Return a function that creates a container through the filter. It takes the arguments of `create_host_config`."""
    made: list[str] = []

    def create(command: list[str], raw: dict[str, Any] | None = None, **host: Any) -> str:
        settings = hub.create_host_config(**{"network_mode": network, **host})
        config = {**settings, **(raw or {})}
        made.append(hub.create_container(IMAGE, command, user=UNPRIVILEGED, host_config=config)["Id"])
        return made[-1]

    yield create
    for container in made:
        try:
            engine.remove_container(container, force=True, v=True)
        except NotFound:
            continue


@pytest.fixture
def foreign(engine: docker.APIClient) -> Iterator[str]:
    """Run a container that does not belong to the hub, and yield its id."""
    name = f"farandole-test-foreign-{secrets.token_hex(3)}"
    container = engine.create_container(IMAGE, ["sleep", "600"], name=name)["Id"]
    engine.start(container)
    yield container
    engine.remove_container(container, force=True)


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(APIError) as caught:
        yield
    assert caught.value.status_code == 403
    assert words in caught.value.explanation


def first_lines(hub: docker.APIClient, container: str, count: int) -> list[str]:
    text = ""
    for piece in hub.logs(container, stream=True, follow=True):
        text += piece.decode()
        if text.count("\n") >= count:
            return text.splitlines()
    raise AssertionError(f"the log ended after {text!r}")


def test_a_server_is_started_and_stopped_like_dockerspawner_does(
    hub: docker.APIClient, engine: docker.APIClient, name: str, network: str
) -> None:
    home = f"{name}-home-ann"
    host = hub.create_host_config(
        auto_remove=True,
        binds={home: {"bind": "/home/user", "mode": "rw"}},
        links={},
        mounts=[],
        mem_limit=64 << 20,
        cpu_period=100_000,
        cpu_quota=50_000,
        network_mode=network,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=64,
        init=False,
    )
    command = ["sh", "-c", "grep -E '^(Cap(Prm|Bnd)|NoNewPrivs)' /proc/self/status; id -u; sleep 600"]
    created = hub.create_container(
        IMAGE, command, name=f"{name}-ann", user=UNPRIVILEGED, volumes=["/home/user"], ports={"8888/tcp": None},
        environment={"A": "1"}, labels={"farandole.user": "ann"}, host_config=host,
    )  # fmt: skip
    hub.start(created["Id"])
    found = hub.inspect_container(f"{name}-ann")
    assert found["NetworkSettings"]["Networks"][network]["IPAddress"].startswith("10.214.240.")
    assert found["Config"]["Labels"] == {"farandole.user": "ann", "farandole.hub": name}
    assert (found["HostConfig"]["Memory"], found["HostConfig"]["PidsLimit"]) == (64 << 20, 64)
    assert engine.inspect_volume(home)["Labels"] == {"farandole.hub": name}
    assert first_lines(hub, created["Id"], 4) == [
        "CapPrm:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        UNPRIVILEGED,
    ]
    assert [one["Id"] for one in hub.containers(all=True)] == [created["Id"]]
    hub.stop(created["Id"], timeout=0)
    with pytest.raises(NotFound):
        wait_until(lambda: not hub.inspect_container(created["Id"]), START_SECONDS)
    hub.inspect_volume(home)


def test_logs_stream_while_the_container_runs(hub: docker.APIClient, create: Callable[..., str]) -> None:
    container = create(["sh", "-c", "echo first; sleep 600"])
    hub.start(container)
    assert first_lines(hub, container, 1) == ["first"]
    hub.kill(container)
    assert hub.wait(container)["StatusCode"] == 137
    hub.remove_container(container, v=True)
    with pytest.raises(NotFound):
        hub.inspect_container(container)


def test_requests_that_enter_or_change_a_running_container_are_refused(
    hub: docker.APIClient, create: Callable[..., str]
) -> None:
    container = create(["sleep", "600"])
    hub.start(container)
    for attempt in (
        lambda: hub.exec_create(container, ["sh"]),
        lambda: hub.put_archive(container, "/", b""),
        lambda: hub.get_archive(container, "/etc/passwd"),
        lambda: hub.commit(container),
        lambda: hub.rename(container, "other"),
        lambda: hub.update_container(container, mem_limit="1g"),
    ):
        with refused("not among the requests"):
            attempt()
    with refused("may not be upgraded"):
        hub.attach(container)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"privileged": True}, "Privileged"),
        ({"cap_add": ["SYS_ADMIN"]}, "CapAdd"),
        ({"binds": ["/:/host"]}, "not paths of the host"),
        ({"binds": ["/var/run/docker.sock:/var/run/docker.sock"]}, "not paths of the host"),
        ({"mounts": [Mount("/host", "farandole-x", type="bind")]}, "Mounts.Type"),
        ({"devices": ["/dev/null:/dev/null"]}, "Devices"),
        ({"network_mode": "host"}, "'host' does not belong to this hub"),
        ({"network_mode": "bridge"}, "'bridge' does not belong to this hub"),
        ({"pid_mode": "host"}, "PidMode"),
        ({"ipc_mode": "host"}, "IpcMode"),
        ({"security_opt": ["apparmor=unconfined"]}, "SecurityOpt"),
        ({"raw": {"privileged": True}}, "HostConfig.privileged"),
        ({"device_requests": [DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu"]])]}, "Count"),
    ],
)
def test_the_host_is_unreachable(create: Callable[..., str], host: dict[str, Any], words: str) -> None:
    with refused(words):
        create(["sleep", "600"], **host)


def test_the_network_of_another_container_is_unreachable(create: Callable[..., str], foreign: str) -> None:
    with refused("neither a name nor an id"):
        create(["sleep", "600"], network_mode=f"container:{foreign}")


def test_root_is_refused(hub: docker.APIClient, network: str) -> None:
    host = hub.create_host_config(network_mode=network)
    with refused("runs as root"):
        hub.create_container(IMAGE, ["id"], host_config=host)
    with refused("User"):
        hub.create_container(IMAGE, ["id"], user="0", host_config=host)


def test_containers_of_others_are_left_alone(
    hub: docker.APIClient, engine: docker.APIClient, foreign: str, network: str
) -> None:
    for attempt in (
        hub.inspect_container,
        hub.stop,
        hub.kill,
        hub.start,
        hub.logs,
        hub.wait,
        hub.remove_container,
        lambda container: hub.connect_container_to_network(container, network),
        lambda container: hub.disconnect_container_from_network(container, network),
    ):
        for spelled in (foreign, foreign[:12], engine.inspect_container(foreign)["Name"][1:]):
            with refused("does not belong to this hub"):
                attempt(spelled)
    assert foreign not in [one["Id"] for one in hub.containers(all=True)]
    assert engine.inspect_container(foreign)["State"]["Running"]


def test_only_the_parts_of_the_hub_are_connected(
    hub: docker.APIClient, engine: docker.APIClient, name: str, network: str
) -> None:
    labels = {"farandole.hub": name, "farandole.role": "service"}
    part = engine.create_container(IMAGE, ["sleep", "600"], labels=labels)["Id"]
    hub.connect_container_to_network(part, network, aliases=["hub"])
    hub.disconnect_container_from_network(part, network, force=True)
    for attempt in (hub.stop, hub.remove_container, hub.inspect_container, hub.logs):
        with refused("one of the hub's own services"):
            attempt(part)


def test_no_volume_is_a_host_folder(hub: docker.APIClient, name: str) -> None:
    with refused("DriverOpts"):
        hub.create_volume(f"{name}-x", driver_opts={"type": "none", "o": "bind", "device": "/"})
    with refused("not among the requests"):
        hub.remove_volume(f"{name}-home-ann")


def test_networks_of_others_are_left_alone(hub: docker.APIClient, name: str) -> None:
    with refused("does not belong to this hub"):
        hub.remove_network("bridge")
    with refused("does not belong to this hub"):
        hub.inspect_network("host")
    with refused("Driver"):
        hub.create_network(f"{name}-x", driver="macvlan")
    assert "bridge" in [one["Name"] for one in hub.networks()]


def test_images_that_are_not_allowed_are_neither_shown_nor_pulled(hub: docker.APIClient) -> None:
    hub.inspect_image(IMAGE)
    for attempt in (hub.inspect_image, hub.pull):
        with refused("not among the allowed"):
            attempt("evil:latest")
