"""`make doctor` on a real engine, and the hub's own messages about the same faults."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hub.doctor.firewall.internet import closing_commands
from hub.process import wait_until
from images.names import HUB, version
from spawner_config.settings import ROOT
from tests.docker.engines.janitor import FIREWALLED as SUBNETS
from tests.docker.engines.janitor import open_firewall
from tests.docker.ports import HTTPS, quiet_port
from tests.docker.stack import Stack, docker, run
from tests.unit.hub.test_certificate import make_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG_SECONDS = 120
DIAL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()
    print("reached")
except ConnectionRefusedError:
    print("refused")
except OSError as exc:
    print(type(exc).__name__)
"""


def doctor(stack: Stack) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "hub.doctor", str(stack.folder), cwd=ROOT)


def of_level(level: str, done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the doctor's findings of one level, each as a single line."""
    found = re.split(r"\n(?=\w)", done.stdout)
    return [" ".join(text.split()) for text in found if text.startswith(f"{level} ")]


def test_a_running_hub_has_no_fault(stack: Stack) -> None:
    done = doctor(stack)
    assert done.returncode == 0, done.stdout + done.stderr
    assert of_level("fault", done) == []
    fine = "\n".join(of_level("ok", done))
    assert "for proxy: used by this hub already" in fine
    assert f"farandole-hub:{version()}" in fine
    assert f"farandole-notebook:{version()}" in fine
    assert "is not in use elsewhere" in fine


def test_a_port_used_by_a_program_or_a_container_is_a_fault(stack: Stack, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = doctor(Stack(tmp_path, subnets=SUBNETS, FARANDOLE_PORT=str(port)))
        assert done.returncode == 1
        assert f"Another program uses port {port} of 127.0.0.1" in "".join(of_level("fault", done))
    port = int(stack.settings["FARANDOLE_PORT"])
    done = doctor(Stack(tmp_path, subnets=SUBNETS, FARANDOLE_PORT=str(port)))
    assert f"The container {stack.name}-proxy uses port {port}" in "".join(of_level("fault", done))


def test_addresses_of_another_network_are_a_fault(stack: Stack, tmp_path: Path) -> None:
    name = f"{stack.name}-somebody-elses"
    docker("network", "create", "--subnet", "10.217.0.0/26", name)
    try:
        done = doctor(Stack(tmp_path, subnets=SUBNETS))
    finally:
        docker("network", "rm", name)
    assert f"10.217.0.0/26 (the engine's network {name}): fewer users" in "".join(of_level("warning", done))


def test_a_missing_engine_is_a_fault(tmp_path: Path) -> None:
    done = doctor(Stack(tmp_path, subnets=SUBNETS, FARANDOLE_ENGINE_SOCKET=str(tmp_path / "nowhere.sock")))
    assert done.returncode == 1
    assert "No Docker engine responds at" in "".join(of_level("fault", done))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("FARANDOLE_ADMIN_PASSWORD", "openssl rand -base64 18"),
        ("FARANDOLE_PROXY_TOKEN", "openssl rand -hex 32"),
        ("FARANDOLE_ADMIN", "administrator"),
    ],
)
def test_a_missing_secret_is_reported_by_the_doctor_and_by_compose(tmp_path: Path, key: str, remedy: str) -> None:
    stack = Stack(tmp_path, subnets=SUBNETS, **{key: ""})
    done = doctor(stack)
    assert done.returncode == 1
    assert f"{key} is not set in .env." in "".join(of_level("fault", done))
    assert remedy in done.stdout
    refused = stack.compose("up", "-d", check=False)
    assert refused.returncode != 0
    assert f"{key} is missing a value: is not set in .env" in refused.stderr
    assert remedy in refused.stderr
    assert stack.containers(everything=True) == []


@pytest.mark.parametrize(
    ("token", "password", "words"),
    [
        ("short", "N4vzUqPqzHnVJb1m", "FARANDOLE_PROXY_TOKEN is too weak: it is not 64 hexadecimal digits"),
        ("0123456789abcdef" * 4, "elevenchars", "FARANDOLE_ADMIN_PASSWORD is too weak: it has 11 characters"),
    ],
)
def test_a_hub_with_a_weak_secret_does_not_start(token: str, password: str, words: str) -> None:
    environment = {
        "CONFIGPROXY_AUTH_TOKEN": token,
        "DOCKER_HOST": "tcp://127.0.0.1:9",
        "FARANDOLE_ADMIN": "ada",
        "FARANDOLE_ADMIN_PASSWORD": password,
        "FARANDOLE_DEPLOYMENT": "docker",
        "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook",
    }
    given = [part for key, value in environment.items() for part in ("--env", f"{key}={value}")]
    done = run("docker", "run", "--rm", "--network=none", *given, HUB.tag(version()))
    assert done.returncode != 0
    assert f"The hub does not start. {words}" in done.stderr
    assert "openssl rand" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreadable_certificate_is_reported_by_the_doctor_and_in_the_log(tmp_path: Path) -> None:
    settings = {"COMPOSE_PROFILES": "tls", "FARANDOLE_TLS_BIND": "127.0.0.1"}
    settings["FARANDOLE_TLS_PORT"] = str(quiet_port(HTTPS))
    stack = Stack(tmp_path, subnets=SUBNETS, **settings)
    folder = make_pair(tmp_path / "tls")
    folder.chmod(0o755)
    (folder / "tls.key").chmod(0)
    done = doctor(stack)
    assert done.returncode == 1
    assert "may not read" in "".join(of_level("fault", done))

    def says(words: str) -> bool:
        log = run("docker", "logs", f"{stack.name}-tls")
        return words in log.stdout + log.stderr

    try:
        stack.compose("up", "-d", "--no-deps", "tls")
        wait_until(lambda: says("No HTTPS: /run/tls/tls.key cannot be read (Permission denied)"), LOG_SECONDS)
        assert not says("Traceback")
        # Once the service can read the key, it begins to serve without a restart.
        (folder / "tls.key").chmod(0o644)
        wait_until(lambda: says("The certificate is good until"), LOG_SECONDS)
    finally:
        stack.down()


@contextmanager
def container_in(subnet: str) -> Iterator[str]:
    """Run a container like a user's server in a network with this subnet, and yield the container's name."""
    name = f"farandole-test-{secrets.token_hex(3)}"
    docker("network", "create", "--subnet", subnet, name)
    try:
        docker("run", "-d", "--name", name, "--network", name, HUB.tag(version()), "sleep", "infinity")
        yield name
    finally:
        run("docker", "rm", "--force", name)
        run("docker", "network", "rm", name)


def test_the_rules_that_it_prints_close_private_ranges_the_machines_ports_and_the_metadata(tmp_path: Path) -> None:
    stack = Stack(tmp_path, subnets=SUBNETS)
    rules = [command.replace("sudo iptables", "iptables -w 60") for command in closing_commands(SUBNETS)]

    def dial(name: str, address: str, port: int) -> str:
        return docker("exec", name, "python3", "-c", DIAL, address, str(port))

    with container_in("10.217.1.0/26") as name, socket.socket() as listener:
        gateway = docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", name)
        listener.bind((gateway, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert dial(name, gateway, port) == "reached"
        assert all(command in doctor(stack).stdout for command in closing_commands(SUBNETS))
        try:
            for rule in rules:
                subprocess.run(["bash", "-c", rule], check=True)
            assert dial(name, gateway, port) == "refused"
            addresses = ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.168.255.1", "10.255.0.1")
            assert {address: dial(name, address, 80) for address in addresses} == dict.fromkeys(addresses, "refused")
            with neighbour_of(name) as address:
                assert dial(name, address, 9999) == "reached"
            said = " ".join(doctor(stack).stdout.split())
            assert "reach no private address, no metadata service and no own port" in said
        finally:
            open_firewall()
        assert dial(name, gateway, port) == "reached"


@contextmanager
def neighbour_of(name: str) -> Iterator[str]:
    """Run another container of the same user, which listens on port 9999, and yield its address."""
    other = f"{name}-b"
    docker("run", "-d", "--name", other, "--network", name, HUB.tag(version()), "python3", "-m", "http.server", "9999")
    try:
        check = ("docker", "exec", other, "python3", "-c", DIAL, "127.0.0.1", "9999")
        wait_until(lambda: "reached" in run(*check).stdout, 30)
        yield docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", other)
    finally:
        run("docker", "rm", "--force", other)
