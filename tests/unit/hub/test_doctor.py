"""Tests for the findings of `make doctor`. The tests with a real engine are in tests/docker/test_doctor.py."""

from __future__ import annotations

import http.server
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest

from hub.doctor.address.origins import check_origins, judge_names
from hub.doctor.address.tls import check_tls, judge_folder, judge_hosts
from hub.doctor.deployment import DEFAULTS, Deployment, read_env_file
from hub.doctor.engine import EngineError, SocketEngine
from hub.doctor.env_file import check_settings
from hub.doctor.finding import Finding, Level, warning
from hub.doctor.firewall.internet import PRIVATE, check_internet, closing_commands, judge_rules, swarm_commands
from hub.doctor.gpus import judge_gpus, parse_list
from hub.doctor.machine import check_memory, check_state, judge_clock, judge_disk, judge_state
from hub.doctor.network import Route, check_ipv6, check_mtu, check_subnets, read_routes, read_uplinks
from hub.doctor.ports import check_ports
from hub.doctor.quotas import check_homes, judge_homes
from hub.doctor.software import check_engine, check_images, check_swarm, judge_compose
from images.doctor import write_doctor
from spawner_config.settings import ROOT
from tests.docker.stack import fill_in
from tests.unit.hub.test_certificate import make_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

GOOD = {
    "FARANDOLE_ADMIN": "ada",
    "FARANDOLE_ADMIN_PASSWORD": "N4vzUqPqzHnVJb1m",
    "FARANDOLE_PROXY_TOKEN": "0123456789abcdef" * 4,
}
TEMPLATE = (ROOT / ".env.example").read_text(encoding="utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def deployment(folder: Path, **settings: str) -> Deployment:
    """Return an operator's deployment folder, whose secrets are valid unless ``settings`` replace them."""
    (folder / "docker-compose.yml").write_text(COMPOSE)
    env = folder / ".env"
    env.touch(mode=0o600)
    env.write_text(fill_in(TEMPLATE, {**GOOD, **settings}))
    return Deployment.read(folder, {})


def bad(findings: Iterable[Finding]) -> list[tuple[Level, str]]:
    return [(each.level, each.found) for each in findings if each.level is not Level.OK]


class Answers:
    """A fake engine that returns the prepared answer for each path in ``answers``, and None for all other paths."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def get(self, path: str, **query: Any) -> Any:
        return self.answers.get(path)


# --- output ---


def test_every_complaint_has_a_remedy_and_keeps_its_lines() -> None:
    text = warning("mtu", "too large " * 20, "first command\nsecond command").text()
    assert text.splitlines()[-2:] == [" " * 23 + "-> first command", " " * 23 + "-> second command"]
    assert all(len(line) <= 118 for line in text.splitlines())
    with pytest.raises(ValueError, match="remedy"):
        warning("mtu", "too large", "")


def test_the_doctor_needs_no_package(tmp_path: Path) -> None:
    write_doctor(tmp_path / "doctor")
    deployment(tmp_path, FARANDOLE_ENGINE_SOCKET=str(tmp_path / "nowhere.sock"))
    environment = {"PATH": os.environ["PATH"]}
    # -S hides site-packages, because the doctor must not depend on packages that are installed for the tests.
    command = [sys.executable, "-I", "-S", str(tmp_path / "doctor")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert not done.stderr
    assert "fault    engine        No Docker engine responds at" in done.stdout
    assert f"{tmp_path}/.env is complete" in done.stdout


# --- settings ---


def test_the_defaults_are_those_of_the_compose_file() -> None:
    found = dict(re.findall(r"\$\{(FARANDOLE_[A-Z_]+):-([^${}]+)\}", COMPOSE))
    assert {key: found.get(key) for key in DEFAULTS} == DEFAULTS


def test_the_file_of_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# A=no\nA=1 # one\nexport B = 'x # y'\nC=\nD=\"z\" # last\nE=a#b\nnonsense\n")
    assert read_env_file(path) == {"A": "1", "B": "x # y", "C": "", "D": "z", "E": "a#b"}


def test_the_environment_overrides_the_file_and_empty_is_the_default(tmp_path: Path) -> None:
    deployment(tmp_path, FARANDOLE_PORT="8001", FARANDOLE_BIND="")
    ours = Deployment.read(tmp_path, {"FARANDOLE_PORT": "8002", "COMPOSE_PROFILES": "tls, postgres"})
    assert (ours.get("FARANDOLE_PORT"), ours.get("FARANDOLE_BIND")) == ("8002", "127.0.0.1")
    assert ours.profiles == {"tls", "postgres"}


def test_valid_settings_have_no_fault(tmp_path: Path) -> None:
    assert bad(check_settings(deployment(tmp_path))) == []


def test_a_missing_file_of_settings_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text(COMPOSE)
    [finding] = check_settings(Deployment.read(tmp_path, {}))
    assert finding.level is Level.FAULT
    assert "cp .env.example .env" in finding.remedy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"FARANDOLE_ADMIN": ""}, "FARANDOLE_ADMIN is not set"),
        ({"FARANDOLE_ADMIN_PASSWORD": ""}, "FARANDOLE_ADMIN_PASSWORD is not set"),
        ({"FARANDOLE_ADMIN_PASSWORD": "elevenchars"}, "it has 11 characters"),
        ({"FARANDOLE_ADMIN_PASSWORD": "changeme-2026"}, "is an example"),
        ({"FARANDOLE_ADMIN_PASSWORD": "before$HOMEbehind"}, "contains a \\$"),
        ({"FARANDOLE_PROXY_TOKEN": "0123abc"}, "is not 64 hexadecimal digits"),
        ({"FARANDOLE_INTERNET": "true"}, "FARANDOLE_INTERNET is 'true'"),
        ({"COMPOSE_PROFILES": "caddy"}, "FARANDOLE_DOMAIN is not set"),
        ({"COMPOSE_PROFILES": "streams"}, "FARANDOLE_STREAMS_SECRET is not set"),
        ({"FARANDOLE_STREAMS_SECRET": "0123abc"}, "FARANDOLE_STREAMS_SECRET is too weak"),
        ({"COMPOSE_PROFILES": "postgres", "FARANDOLE_DATABASE": "x"}, "FARANDOLE_POSTGRES_PASSWORD is not set"),
        (
            {
                "COMPOSE_PROFILES": "postgres",
                "FARANDOLE_POSTGRES_PASSWORD": "one-good-password",
                "FARANDOLE_DATABASE": "postgresql+psycopg://farandole:another@postgres/farandole",
            },
            "is not FARANDOLE_POSTGRES_PASSWORD",
        ),
    ],
)
def test_an_invalid_setting_is_one_fault(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    [(level, found)] = bad(check_settings(deployment(tmp_path, **settings)))
    assert level is Level.FAULT
    assert re.search(words, found)


def test_a_quoted_or_doubled_dollar_is_not_a_variable(tmp_path: Path) -> None:
    assert bad(check_settings(deployment(tmp_path, FARANDOLE_ADMIN_PASSWORD="'before$HOMEbehind'"))) == []
    assert bad(check_settings(deployment(tmp_path, FARANDOLE_ADMIN_PASSWORD="before$$HOMEbehind"))) == []


def test_oauth_needs_its_own_settings_and_no_password(tmp_path: Path) -> None:
    settings = {"FARANDOLE_LOGIN": "github", "FARANDOLE_ADMIN_PASSWORD": "any", "FARANDOLE_ALLOWED_USERS": "*"}
    found = [found for _, found in bad(check_settings(deployment(tmp_path, **settings)))]
    assert len(found) == 3
    assert all(words.startswith("FARANDOLE_OAUTH_") for words in found)


def test_a_readable_file_and_a_mistyped_setting_are_warnings(tmp_path: Path) -> None:
    deployment(tmp_path)
    with (tmp_path / ".env").open("a") as file:
        file.write("FARANDOLE_PROT=8001\n")
    (tmp_path / ".env").chmod(0o644)
    levels, found = zip(*bad(check_settings(Deployment.read(tmp_path, {}))), strict=True)
    assert set(levels) == {Level.WARNING}
    assert "mode 0644" in found[0]
    assert "FARANDOLE_PROT" in found[1]


# --- engine, compose, images ---


def test_a_missing_engine_and_a_missing_permission_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No Docker engine responds") as missing:
        SocketEngine(tmp_path / "nowhere.sock").get("/version")
    assert "FARANDOLE_ENGINE_SOCKET" in missing.value.remedy
    left_over = tmp_path / "left-over.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left_over))
    with pytest.raises(EngineError, match="refused"):
        SocketEngine(left_over).get("/version")


def test_a_user_without_access_to_the_socket_gets_the_name_of_the_group(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, socket, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from hub.doctor.engine import EngineError, SocketEngine\n"
        "path = pathlib.Path(sys.argv[2])\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(str(path))\n"
        "listener.listen()\n"
        "path.chmod(0)\n"
        # File permissions do not restrict root, so root becomes an unprivileged user.
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: SocketEngine(path).get('/version')\n"
        "except EngineError as exc: print(exc, exc.remedy)\n"
    )
    command = [sys.executable, "-c", code, str(ROOT), str(tmp_path / "engine.sock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "You may not use the engine" in done.stdout
    assert "usermod -aG docker" in done.stdout


@pytest.mark.parametrize(
    ("version", "level"),
    [("19.03.15", Level.FAULT), ("20.10.24+dfsg1", Level.OK), ("29.1.0", Level.OK), ("", Level.FAULT)],
)
def test_the_engines_version(version: str, level: Level) -> None:
    assert check_engine({"Version": version}, "there").level is level


MANAGER: dict[str, Any] = {"Swarm": {"ControlAvailable": True}}


@pytest.mark.parametrize(
    ("info", "version", "words"),
    [
        (MANAGER, {"ApiVersion": "1.44"}, None),
        (MANAGER, {"ApiVersion": "1.43"}, "engine 25"),
        (MANAGER, {}, "engine 25"),
        ({}, {"ApiVersion": "1.45"}, "docker swarm init"),
        ({"Swarm": {"ControlAvailable": False}}, {"ApiVersion": "1.45"}, "docker swarm init"),
    ],
)
def test_a_hub_on_a_swarm_needs_a_manager(
    tmp_path: Path, info: dict[str, Any], version: dict[str, Any], words: str | None
) -> None:
    [found] = check_swarm(deployment(tmp_path, FARANDOLE_DEPLOYMENT="swarm"), info, version)
    assert found.level is (Level.FAULT if words else Level.OK)
    assert (words or "") in found.remedy
    assert list(check_swarm(deployment(tmp_path), info, version)) == []


@pytest.mark.parametrize(
    ("version", "level"), [("", Level.FAULT), ("2.19.1", Level.FAULT), ("v2.26.1-4\n", Level.OK), ("5.0.1", Level.OK)]
)
def test_the_compose_plugin(version: str, level: Level) -> None:
    assert judge_compose(version).level is level


def labelled(version: str) -> dict[str, Any]:
    return {"Size": 1e9, "Config": {"Labels": {"org.opencontainers.image.version": version}}}


def test_images_exist_and_have_the_right_version(tmp_path: Path) -> None:
    engine = Answers(
        **{
            "/images/farandole-hub:0.1.0/json": labelled("0.1.0"),
            "/images/farandole-notebook:0.1.0/json": labelled("9"),
        }
    )
    (level, found), *others = bad(check_images(deployment(tmp_path), engine))
    assert level is Level.FAULT
    assert "farandole-notebook:0.1.0 has version 9" in found
    # The hub works without the images of endpoints.
    assert [level for level, _ in others] == [Level.WARNING] * 2


def test_missing_images_can_be_pulled_or_not(tmp_path: Path) -> None:
    here = list(check_images(deployment(tmp_path, FARANDOLE_GPUS="0:a"), Answers()))
    assert [each.level for each in here] == [*[Level.FAULT] * 3, *[Level.WARNING] * 2]
    assert "make images ACCELERATOR=cuda" in here[2].remedy
    assert "farandole-serving:0.1.0-torch is not here" in here[4].found
    there = list(check_images(deployment(tmp_path, FARANDOLE_REGISTRY="registry.example.org/"), Answers()))
    assert [each.remedy for each in there] == [
        f"docker pull registry.example.org/farandole-{name}"
        for name in ("hub:0.1.0", "notebook:0.1.0", "serving:0.1.0", "serving:0.1.0-torch")
    ]
    assert {each.level for each in there} == {Level.WARNING}


# --- machine ---


@pytest.mark.parametrize(
    ("free", "missing", "level"),
    [
        (3e9, ["hub", "notebook"], Level.FAULT),
        (5e9, ["hub", "notebook"], Level.WARNING),
        (14e9, ["hub", "notebook"], Level.OK),
        (11e9, ["hub", "notebook", "cuda"], Level.FAULT),
        (0.5e9, [], Level.FAULT),
        (11e9, [], Level.OK),
    ],
)
def test_free_disk_space(free: float, missing: list[str], level: Level) -> None:
    assert judge_disk("/var/lib/docker", free, missing).level is level


@pytest.mark.parametrize(
    ("memory", "cores", "level"),
    [(1e9, 4, Level.FAULT), (2e9, 4, Level.WARNING), (8e9, 1, Level.WARNING), (8e9, 4, Level.OK)],
)
def test_memory_and_cores(memory: float, cores: int, level: Level) -> None:
    assert check_memory({"MemTotal": int(memory), "NCPU": cores}).level is level


def test_sizes_have_binary_units() -> None:
    found = judge_disk("/var/lib/docker", 5 * 2**30, []).found
    assert found == "5.0 GiB free in /var/lib/docker; users' files need 10 GiB more"
    assert check_memory({"MemTotal": 8 * 2**30, "NCPU": 4}).found == "8.0 GiB of memory, 4 cores"


def test_an_unsynchronised_clock_is_a_warning() -> None:
    assert [judge_clock(error).level for error in (None, 20_000, 16_000_000)] == [Level.OK, Level.OK, Level.WARNING]


# --- GPUs ---

LISTED = """GPU 0: NVIDIA H200 (UUID: GPU-5a1d-01)
  MIG 1g.18gb Device  0: (UUID: MIG-77aa-02)
GPU 1: NVIDIA H200 (UUID: GPU-5a1d-03)
"""
THERE = frozenset({"0", "1", "GPU-5a1d-01", "MIG-77aa-02", "GPU-5a1d-03"})
WITH_RUNTIME = {"Runtimes": {"nvidia": {}}}
ON_A_SWARM = {"FARANDOLE_DEPLOYMENT": "swarm"}


def test_nvidia_smi_output_is_parsed() -> None:
    assert parse_list(LISTED) == THERE


@pytest.mark.parametrize(
    ("settings", "info", "there", "level", "words"),
    [
        ({}, {}, frozenset(), Level.OK, "is empty"),
        ({}, WITH_RUNTIME, THERE, Level.OK, "assigns to no one"),
        ({"FARANDOLE_GPUS": "0:h200,1:h200"}, WITH_RUNTIME, THERE, Level.OK, "requests to the engine use nvidia"),
        ({"FARANDOLE_GPUS": "0:h200,MIG-77aa-02:slice"}, {"CDISpecDirs": ["/etc/cdi"]}, THERE, Level.OK, "use cdi"),
        ({"FARANDOLE_GPUS": "0:h200,2:h200"}, WITH_RUNTIME, THERE, Level.FAULT, "names 2"),
        ({"FARANDOLE_GPUS": "0:h200"}, {}, THERE, Level.FAULT, "cannot give GPUs"),
        ({"FARANDOLE_GPUS": "0:h200", "FARANDOLE_GPU_REQUEST": "nvidia"}, {}, THERE, Level.OK, "use nvidia"),
        ({"FARANDOLE_GPUS": "0:h200", "FARANDOLE_GPU_REQUEST": "cdi"}, {}, THERE, Level.FAULT, "cannot give GPUs"),
        (
            {"FARANDOLE_GPUS": "0:h200"},
            WITH_RUNTIME,
            frozenset(),
            Level.WARNING,
            "The GPUs of the host cannot be listed",
        ),
        ({"FARANDOLE_GPUS": "GPU-99:a,GPU-98:a", **ON_A_SWARM}, {}, THERE, Level.OK, "names 2 on all machines"),
        ({"FARANDOLE_GPUS": "first", **ON_A_SWARM}, {}, THERE, Level.FAULT, "FARANDOLE_GPUS is 'first'"),
        ({"FARANDOLE_GPUS": "first"}, WITH_RUNTIME, THERE, Level.FAULT, "FARANDOLE_GPUS is 'first'"),
    ],
)
def test_gpus(
    tmp_path: Path, settings: dict[str, str], info: dict[str, Any], there: frozenset[str], level: Level, words: str
) -> None:
    finding = judge_gpus(deployment(tmp_path, **settings), info, there)
    assert finding.level is level
    assert words in finding.found


# --- ports ---


def container(name: str, project: str, port: int, address: str = "127.0.0.1") -> dict[str, Any]:
    published = [{"PrivatePort": 8000, "PublicPort": port, "IP": address, "Type": "tcp"}]
    return {"Names": [f"/{name}"], "Labels": {"com.docker.compose.project": project}, "Ports": published}


def test_ports_of_our_container_of_another_and_of_a_program(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ours = deployment(tmp_path, FARANDOLE_PORT=str(port))
        assert bad(check_ports(ours, Answers(**{"/containers/json": [container("p", "farandole", port)]}))) == []
        other = Answers(**{"/containers/json": [container("web", "blog", port, "0.0.0.0")]})
        assert "The container web uses port" in bad(check_ports(ours, other))[0][1]
        elsewhere = Answers(**{"/containers/json": [container("web", "blog", port, "192.0.2.7")]})
        for engine in (elsewhere, None):
            [(level, found)] = bad(check_ports(ours, engine))
            assert level is Level.FAULT
            assert f"Another program uses port {port}" in found
    assert bad(check_ports(ours, None)) == []


def test_an_address_of_another_machine_is_a_fault(tmp_path: Path) -> None:
    [(level, found), _] = bad(check_ports(deployment(tmp_path, FARANDOLE_BIND="203.0.113.9"), None))
    assert level is Level.FAULT
    assert "not an address of this machine" in found


def test_a_hub_for_others_without_https_is_a_fault_until_the_administrator_allows_it(tmp_path: Path) -> None:
    def about_passwords(**settings: str) -> list[Level]:
        found = check_ports(deployment(tmp_path, FARANDOLE_BIND="0.0.0.0", **settings), None)
        return [each.level for each in found if "read passwords" in each.found]

    assert about_passwords() == [Level.FAULT]
    assert about_passwords(FARANDOLE_HTTP="insecure") == [Level.WARNING]
    assert about_passwords(FARANDOLE_HTTPS="yes") == []
    assert about_passwords(COMPOSE_PROFILES="tls") == [Level.FAULT]


def test_a_program_at_the_hubs_port_of_ipv6_is_a_fault(tmp_path: Path) -> None:
    def found(**settings: str) -> list[str]:
        checked = check_ports(deployment(tmp_path, FARANDOLE_PORT=str(port), **settings), None)
        return [each.found for each in checked if "Browsers on this machine try it first" in each.found]

    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert found() == [
            f"Another program uses port {port} of ::1. Browsers on this machine try it first for hub.localhost."
        ]
        # These hubs either have another name, or listen at ::1 themselves.
        assert found(FARANDOLE_DOMAIN="hub.example.org") == found(FARANDOLE_BIND="::1") == []
    assert found() == []


@pytest.mark.parametrize("port", ["0", "http", "70000"])
def test_an_invalid_port_is_a_fault(tmp_path: Path, port: str) -> None:
    assert "FARANDOLE_PORT is" in bad(check_ports(deployment(tmp_path, FARANDOLE_PORT=port), None))[0][1]


def test_two_services_with_the_same_port(tmp_path: Path) -> None:
    found = bad(check_ports(deployment(tmp_path, COMPOSE_PROFILES="tls,caddy"), Answers(**{"/containers/json": []})))
    assert (Level.FAULT, "caddy and tls both want port 443.") in found


# --- networks ---

TABLE = """Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
"""
ETH0 = Route(interface="eth0", network=IPv4Network("0.0.0.0/0"))


def test_routes_and_uplinks_are_read(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(TABLE)
    routes = read_routes(tmp_path / "route")
    assert routes == [ETH0, Route(interface="docker0", network=IPv4Network("172.17.0.0/16"))]
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "mtu").write_text("1400\n")
    assert read_uplinks(routes, tmp_path) == {"eth0": 1400}


def network(name: str, subnet: str = "172.18.0.0/16", **more: Any) -> dict[str, Any]:
    return {"Name": name, "Id": "0123456789abcdef", "IPAM": {"Config": [{"Subnet": subnet}]}, **more}


def test_an_mtu_larger_than_that_of_the_uplink_is_a_warning(tmp_path: Path) -> None:
    uplinks = {"eth0": 9000, "wg0": 1400}
    finding = check_mtu(deployment(tmp_path), uplinks, [])
    assert finding.level is Level.WARNING
    assert "FARANDOLE_MTU=1400" in finding.remedy
    fitting = deployment(tmp_path, FARANDOLE_MTU="1400")
    assert check_mtu(fitting, uplinks, []).level is Level.OK
    older = [network("farandole-front"), network("blog_default"), network("farandole-back", Internal=True)]
    finding = check_mtu(fitting, uplinks, older)
    assert finding.level is Level.WARNING
    assert finding.found.startswith("farandole-front has an older MTU")


@pytest.mark.parametrize(
    ("routes", "networks", "level", "words"),
    [
        ([ETH0], [], Level.OK, "not in use elsewhere"),
        (["10.0.0.0/8"], [], Level.FAULT, "a route of tun0"),
        (["10.213.7.0/24"], [], Level.WARNING, "fewer users"),
        (
            [Route(interface="br-0123456789ab", network=IPv4Network("10.213.0.0/26"))],
            [network("farandole-user-ada", "10.213.0.0/26", Labels={"farandole.hub": "farandole"})],
            Level.OK,
            "not in use elsewhere",
        ),
        ([], [network("blog_default", "10.213.0.0/16")], Level.FAULT, "the engine's network blog_default"),
        ([], [network("v6", "fd00::/64")], Level.OK, "not in use elsewhere"),
    ],
)
def test_used_addresses_are_named(
    tmp_path: Path, routes: list[Any], networks: list[Any], level: Level, words: str
) -> None:
    table = [Route(interface="tun0", network=IPv4Network(each)) if isinstance(each, str) else each for each in routes]
    finding = check_subnets(deployment(tmp_path), table, networks)
    assert (finding.level, words in finding.found) == (level, True), finding.found


@pytest.mark.parametrize("subnets", ["10.213.0.1/16", "somewhere", "10.213.0.0/28"])
def test_an_invalid_range_is_a_fault(tmp_path: Path, subnets: str) -> None:
    finding = check_subnets(deployment(tmp_path, FARANDOLE_SUBNETS=subnets), [], [])
    assert finding.level is Level.FAULT


# --- state ---


def test_state_on_the_disk_of_users_volumes_is_a_warning(tmp_path: Path) -> None:
    info = {"DockerRootDir": str(tmp_path)}
    here = check_state(deployment(tmp_path), Answers(), info)
    assert here.level is Level.WARNING
    assert "a user who fills it stops the hub's database" in here.found
    assert "FARANDOLE_STATE_FOLDER" in here.remedy
    # A folder that does not exist yet will be on its parent's disk.
    new = deployment(tmp_path, FARANDOLE_STATE_FOLDER=str(tmp_path / "state" / "hub"))
    assert check_state(new, Answers(), info).level is Level.WARNING
    # /proc is never on the same disk as the folder of a test.
    elsewhere = deployment(tmp_path, FARANDOLE_STATE_FOLDER="/proc")
    assert check_state(elsewhere, Answers(), info).level is Level.OK
    volume = {"/volumes/farandole-state": {"Options": {"device": "/proc"}, "Mountpoint": str(tmp_path)}}
    assert check_state(deployment(tmp_path), Answers(**volume), info).level is Level.OK


def test_a_database_elsewhere_needs_no_disk_here(tmp_path: Path) -> None:
    info = {"DockerRootDir": str(tmp_path)}
    url = "postgresql+psycopg://farandole:secret@db.example.org/farandole"
    assert check_state(deployment(tmp_path, FARANDOLE_DATABASE=url), Answers(), info).level is Level.OK
    beside = deployment(tmp_path, FARANDOLE_DATABASE=url, COMPOSE_PROFILES="postgres")
    assert check_state(beside, Answers(), info).level is Level.WARNING


def test_a_disk_that_cannot_be_examined_asks_for_root() -> None:
    assert judge_state("/var/lib/docker", None, "the volume farandole-state", None).remedy == "Run this as root."


# --- homes ---

MOUNTS = """\
25 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
30 25 0:6 / /proc rw,nosuid shared:3 - proc proc rw
41 25 254:17 / /var/lib/docker rw,relatime shared:9 - xfs /dev/vdb rw,attr2,inode64,{quotas}
42 41 0:50 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/a
"""


def test_an_engine_whose_disk_has_project_quotas_enforces_the_size_of_homes() -> None:
    for quotas in ("prjquota", "pquota"):
        found = judge_homes("10G", "/var/lib/docker", MOUNTS.format(quotas=quotas))
        assert (found.level, found.found) == (
            Level.OK,
            "10G; the engine enforces it for new homes, because /var/lib/docker has project quotas",
        )


@pytest.mark.parametrize(
    ("folder", "quotas", "kind"),
    [
        ("/var/lib/docker", "noquota", "xfs"),
        ("/var/lib/docker-2", "prjquota", "ext4"),
        ("relative", "prjquota", "an unknown file system"),
    ],
)
def test_an_engine_without_project_quotas_is_a_warning_with_a_remedy(folder: str, quotas: str, kind: str) -> None:
    found = judge_homes("10G", folder, MOUNTS.format(quotas=quotas))
    assert found.level is Level.WARNING
    assert f"{folder} is on {kind}" in found.found
    assert "pquota" in found.remedy
    assert "FARANDOLE_STATE_FOLDER" in found.remedy


def test_homes_without_a_limit_or_on_a_swarm_need_no_quotas(tmp_path: Path) -> None:
    assert check_homes(deployment(tmp_path), {}).found.startswith("no limit on their size; FARANDOLE_HOME_SIZE")
    swarm = deployment(tmp_path, FARANDOLE_HOME_SIZE="10G", FARANDOLE_DEPLOYMENT="swarm")
    assert check_homes(swarm, {}).level is Level.OK
    here = deployment(tmp_path, FARANDOLE_HOME_SIZE="10G")
    assert check_homes(here, {"DockerRootDir": str(tmp_path)}).found.startswith("10G")


# --- firewall ---


def test_a_swarm_with_homes_and_internet_needs_the_word_that_every_machine_has_the_rules(tmp_path: Path) -> None:
    swarm = {"FARANDOLE_DEPLOYMENT": "swarm", "FARANDOLE_SWARM_HOMES": "nfs://files/homes"}
    first = next(check_internet(deployment(tmp_path, **swarm)))
    assert first.level is Level.FAULT
    assert "could mount the homes of all users" in first.found
    [closed] = check_internet(deployment(tmp_path, **swarm, FARANDOLE_INTERNET="no"))
    assert closed.level is Level.OK
    [only] = check_internet(deployment(tmp_path, **swarm, FARANDOLE_FIREWALL="set"))
    assert only.level is not Level.FAULT


def listed(commands: Iterable[str]) -> str:
    """Return the rules of DOCKER-USER after these commands have run, in the format of `iptables -S`."""
    rules: list[str] = []
    for command in commands:
        insert = re.search(r"iptables -I DOCKER-USER (.*?)(; done|$)", command)
        words = insert[1] if insert else ""
        for protocol in ("tcp", "udp") if "$p" in words else ("",) if words else ():
            line = words.replace("$p", protocol)
            ranges = re.search(r"-d (\S+)", line)
            for one in ranges[1].split(",") if ranges else [""]:
                rules.insert(0, f"-A DOCKER-USER {line.replace(ranges[1], one) if ranges else line}")
    return "\n".join(["-N DOCKER-USER", *rules, "-A DOCKER-USER -j RETURN", ""])


OPEN = "-N DOCKER-USER\n-A DOCKER-USER -j RETURN\n"
CLOSED = listed(closing_commands("10.213.0.0/16"))
METADATA_ONLY = (
    "-A DOCKER-USER -s 10.213.0.0/16 -d 169.254.0.0/16 -p tcp -m tcp ! --dport 53 -j REJECT --reject-with x\n"
)
"""The firewall rule that version 0.1.0 printed for the operator. The rule covers only link-local addresses."""
LOCKED = "-P INPUT ACCEPT\n-A INPUT -s 10.0.0.0/8 -p tcp -m tcp ! --dport 53 -m conntrack --ctstate NEW -j REJECT\n"
ALL = ["private", "metadata", "own ports"]


def without(network: str) -> str:
    return "".join(f"{line}\n" for line in CLOSED.splitlines() if network not in line)


def above(rule: str) -> str:
    """Return the closing rules of DOCKER-USER, with a rule above them."""
    return f"-A DOCKER-USER {rule}\n{CLOSED}"


@pytest.mark.parametrize(
    ("forwarded", "incoming", "reached"),
    [
        (OPEN, "-P INPUT ACCEPT\n", ALL),
        (CLOSED, "-P INPUT ACCEPT\n", ["own ports"]),
        (OPEN + CLOSED, LOCKED, ["private", "metadata"]),
        (CLOSED, LOCKED, []),
        (METADATA_ONLY + OPEN, LOCKED, ["private", "metadata"]),
        (without("192.168.0.0/16"), LOCKED, ["private"]),
        (without("100.64.0.0/10"), LOCKED, ["private", "metadata"]),
        (without("168.63.129.16"), LOCKED, ["private", "metadata"]),
        (CLOSED.replace("-s 10.213.0.0/16", "-s 10.213.0.0/24"), LOCKED, ["private", "metadata"]),
        (CLOSED.replace("-j REJECT", "-p tcp --dport 443 -j REJECT"), LOCKED, ["private", "metadata"]),
        (CLOSED.replace("REJECT", "ACCEPT"), LOCKED, ["private", "metadata"]),
        ("-A DOCKER-USER -s 10.213.0.0/16 -j ACCEPT\n" + CLOSED, LOCKED, ["private", "metadata"]),
        ("-A DOCKER-USER -d 192.168.7.0/24 -j RETURN\n" + CLOSED, LOCKED, ["private"]),
        ("-A DOCKER-USER -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n" + CLOSED, LOCKED, []),
        (CLOSED, "-P INPUT DROP\n", []),
        (CLOSED, "-P INPUT ACCEPT\n-A INPUT -p tcp --dport 25 -j DROP\n", ["own ports"]),
        (CLOSED, LOCKED.replace("NEW", "INVALID"), ["own ports"]),
        (CLOSED, "-P INPUT ACCEPT\n-A INPUT ! -s 10.213.0.0/16 -j DROP\n", ["own ports"]),
        # Rules that accept some of the connections.
        (above("-s 10.213.0.0/16 -p tcp -m multiport --dports 80,443 -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("-p tcp -m tcp ! --dport 53 -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("-p tcp -m tcp --sport 53 -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("! -p udp -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("! -i eth0 -j RETURN"), LOCKED, ["private", "metadata"]),
        (above("-i br-0123456789ab -j RETURN"), LOCKED, ["private", "metadata"]),
        (above("-i br+ -j RETURN"), LOCKED, ["private", "metadata"]),
        (above("-o eth0 -j RETURN"), LOCKED, ["private", "metadata"]),
        (above("-m mark --mark 0x1 -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("-m conntrack --ctstate NEW,RELATED -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("-m conntrack ! --ctstate INVALID -j ACCEPT"), LOCKED, ["private", "metadata"]),
        (above("! -d 169.254.0.0/16 -j RETURN"), LOCKED, ["private", "metadata"]),
        (above("! -s 192.168.0.0/16 -j RETURN"), LOCKED, ["private", "metadata"]),
        (CLOSED, f"-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n{LOCKED}", ["own ports"]),
        (CLOSED, f"-A INPUT -d 192.168.1.5/32 -j ACCEPT\n{LOCKED}", ["own ports"]),
        (CLOSED, "-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n", ["own ports"]),
        # Rules that accept none of them, or only those to name servers or to users' own networks.
        (above("-p tcp -m tcp --dport 53 -j ACCEPT"), LOCKED, []),
        (above("-p udp -m udp --dport 123 -j ACCEPT"), LOCKED, []),
        (above("! -p tcp -j RETURN"), LOCKED, []),
        (above("-i eth0 -j ACCEPT"), LOCKED, []),
        (above("-s 192.168.0.0/16 -j RETURN"), LOCKED, []),
        (above("! -s 10.0.0.0/8 -j RETURN"), LOCKED, []),
        (above("-d 10.213.0.0/16 -p tcp -m tcp --dport 80 -j RETURN"), LOCKED, []),
        (above("-d 93.184.215.14/32 -j ACCEPT"), LOCKED, []),
        (above("-m conntrack ! --ctstate NEW -j ACCEPT"), LOCKED, []),
        (above("-m mark --mark 0x1 -j DROP"), LOCKED, []),
        (CLOSED, f"-A INPUT -i lo -j ACCEPT\n-A INPUT -d 127.0.0.0/8 -j ACCEPT\n{LOCKED}", []),
        (CLOSED, "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n", []),
        # Rules that block some of the connections.
        ("-A DOCKER-USER -m mark --mark 0x1 -j REJECT\n" + OPEN, LOCKED, ["private", "metadata"]),
        ("-A DOCKER-USER -m rpfilter -j REJECT\n" + OPEN, LOCKED, ["private", "metadata"]),
        (CLOSED.replace("-j REJECT", "-o eth0 -j REJECT"), LOCKED, ["private", "metadata"]),
        (CLOSED.replace("-j REJECT", "-p udp -j REJECT"), LOCKED, ["private", "metadata"]),
        (CLOSED, LOCKED.replace("! --dport 53", "! --dport 22"), ["own ports"]),
        (CLOSED, LOCKED.replace("-p tcp", "-p tcp -m mark --mark 0x1"), ["own ports"]),
        # Rules that block all of them.
        ('-A DOCKER-USER -s 10.213.0.0/16 -m comment --comment "no way out" -j DROP\n' + OPEN, LOCKED, []),
    ],
)
def test_containers_reach_no_private_range_and_no_clouds_metadata(
    tmp_path: Path, forwarded: str, incoming: str, reached: list[str]
) -> None:
    finding = judge_rules(deployment(tmp_path), forwarded, incoming)
    assert finding.level is (Level.WARNING if reached else Level.OK)
    if reached:
        assert [words for words in ALL if words in finding.found] == reached
        assert set(closing_commands("10.213.0.0/16")) <= set(finding.remedy.splitlines())


@pytest.mark.parametrize("address", ["100.100.100.200", "168.63.129.16", "169.254.169.254"])
def test_the_finding_names_each_clouds_metadata_service(tmp_path: Path, address: str) -> None:
    assert address in judge_rules(deployment(tmp_path), OPEN, LOCKED).found
    assert address not in judge_rules(deployment(tmp_path), CLOSED, LOCKED).found
    assert any(IPv4Network(address).subnet_of(each) for each in PRIVATE)


def test_a_range_that_the_administrator_opens_is_left_out(tmp_path: Path) -> None:
    ours = deployment(tmp_path, FARANDOLE_PRIVATE_RANGES="192.168.1.5, 10.8.0.0/24")
    [exception] = [line for line in judge_rules(ours, OPEN, LOCKED).remedy.splitlines() if "-j RETURN" in line][1:]
    assert "-d 10.213.0.0/16,192.168.1.5/32,10.8.0.0/24 -j RETURN" in exception
    rules = listed(closing_commands("10.213.0.0/16", [IPv4Network("192.168.1.5"), IPv4Network("10.8.0.0/24")]))
    assert judge_rules(ours, rules, LOCKED).level is Level.OK
    assert judge_rules(deployment(tmp_path), rules, LOCKED).level is Level.WARNING
    wrong = judge_rules(deployment(tmp_path, FARANDOLE_PRIVATE_RANGES="the lab"), OPEN, LOCKED)
    assert "FARANDOLE_PRIVATE_RANGES is not made of addresses" in wrong.found


def test_on_a_swarm_the_rules_close_homes_and_vxlan_ports_on_the_way_out(tmp_path: Path) -> None:
    swarm = deployment(tmp_path, FARANDOLE_DEPLOYMENT="swarm")
    finding = judge_rules(swarm, OPEN, "-P INPUT ACCEPT\n")
    assert [words for words in (*ALL, "4789") if words in finding.found] == [*ALL, "4789"]
    assert set(swarm_commands()) <= set(finding.remedy.splitlines())
    assert all("-i docker_gwbridge" in line for line in swarm_commands())
    locked = "-A INPUT -i docker_gwbridge -p tcp ! --dport 53 -m conntrack --ctstate NEW -j REJECT\n"
    closed = judge_rules(swarm, listed(swarm_commands()), locked)
    assert (closed.level, "other machines need the same rules" in closed.found) == (Level.OK, True)
    no_ports = listed(line for line in swarm_commands() if "4789" not in line)
    assert "the ports 111, 2049, 2377, 4789, 7946 of all machines" in judge_rules(swarm, no_ports, locked).found
    assert judge_rules(swarm, CLOSED, LOCKED).level is Level.WARNING
    rules = listed(swarm_commands())
    for rule, words in (
        ("! -i eth0 -j RETURN", "private"),
        ("-i docker_gwbridge -p tcp -m multiport --dports 80,443 -j ACCEPT", "private"),
        ("-i docker+ -j ACCEPT", "private"),
        ("-i eth0 -j ACCEPT", "no private address"),
        ("! -i docker_gwbridge -j RETURN", "no private address"),
    ):
        assert words in judge_rules(swarm, f"-A DOCKER-USER {rule}\n{rules}", locked).found
    marked = rules.replace("-m multiport", "-m mark --mark 0x1 -m multiport")
    assert "the ports 111" in judge_rules(swarm, marked, locked).found


def test_networks_with_ipv6_are_named(tmp_path: Path) -> None:
    network = {"Id": "1" * 64, "Name": "farandole-front", "EnableIPv6": True}
    assert "fc00::/7" in check_ipv6(deployment(tmp_path), [network]).found
    others = [{**network, "Name": "blog"}, {**network, "EnableIPv6": False}]
    assert check_ipv6(deployment(tmp_path), others).level is Level.OK


def test_rules_are_printed_to_a_user_who_may_not_list_them(tmp_path: Path) -> None:
    finding = judge_rules(deployment(tmp_path), None, None)
    assert finding.level is Level.WARNING
    assert "Run this as root" in finding.remedy


# --- certificate ---


def test_a_certificate_that_the_container_can_use_has_no_fault(tmp_path: Path, set_zone: Callable[[str], None]) -> None:
    set_zone("Asia/Bangkok")
    folder = make_pair(tmp_path / "tls")
    finding = judge_folder(folder, user=folder.stat().st_uid)
    assert finding.level is Level.OK
    assert re.search(r"valid until \d{4}-\d\d-\d\d \d\d:\d\d UTC\+07:00$", finding.found)


@pytest.mark.parametrize("name", [".", "tls.crt", "tls.key"])
def test_files_that_the_containers_user_may_not_read(tmp_path: Path, name: str) -> None:
    folder = make_pair(tmp_path / "tls")
    folder.chmod(0o755)
    (folder / "tls.key").chmod(0o644)
    stranger = max(folder.stat().st_uid, folder.stat().st_gid) + 1
    assert judge_folder(folder, stranger).level is Level.OK
    (folder / name).chmod(0o700 if name == "." else 0o600)
    finding = judge_folder(folder, stranger)
    assert finding.level is Level.FAULT
    assert f"may not read {folder / name}" in finding.found
    assert "chown" in finding.remedy


def test_a_link_that_is_broken_in_the_container(tmp_path: Path) -> None:
    folder = make_pair(tmp_path / "live")
    outside = (make_pair(tmp_path / "archive") / "tls.key").rename(tmp_path / "archive" / "key1.pem")
    (folder / "tls.key").unlink()
    (folder / "tls.key").symlink_to(outside)
    assert "is a link out of its folder" in judge_folder(folder, folder.stat().st_uid).found


def test_a_certificate_that_expires_soon_or_is_missing(tmp_path: Path) -> None:
    user = tmp_path.stat().st_uid
    soon = judge_folder(make_pair(tmp_path / "soon", days=3), user)
    assert soon.level is Level.WARNING
    assert re.search(r"ends at \d{4}-\d\d-\d\d \d\d:\d\d UTC\S*\.$", soon.found)
    assert judge_folder(make_pair(tmp_path / "ended", days=-1), user).level is Level.FAULT
    assert judge_folder(tmp_path / "nowhere", user).level is Level.FAULT


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """A server with a certificate for localhost: its port, and a context that trusts the certificate."""
    folder = make_pair(tmp_path / "https", names=["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, ssl.create_default_context(cafile=str(folder / "tls.crt"))
        server.shutdown()


def test_the_certificate_that_browsers_receive(https: tuple[int, ssl.SSLContext]) -> None:
    port, trusting = https
    assert judge_hosts(["localhost"], port, trusting).level is Level.OK
    for hosts, context, said in (
        (["localhost", "127.0.0.1"], trusting, "IP address mismatch"),
        (["localhost"], ssl.create_default_context(), "self-signed certificate"),
    ):
        found = judge_hosts(hosts, port, context)
        assert found.level is Level.FAULT
        assert f"at https://{hosts[-1]}:{port} is refused: " in found.found
        assert said in found.found
        assert found.remedy.startswith("Give the server in front of the hub a certificate for the hub's host and all")


def test_a_server_that_does_not_answer_is_named(https: tuple[int, ssl.SSLContext]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    found = judge_hosts(["localhost"], port, https[1])
    assert found.level is Level.WARNING
    assert f"https://localhost:{port} does not answer" in found.found


def test_the_certificates_of_the_hub_and_of_a_user_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("hub.doctor.address.tls.judge_hosts", lambda *given: asked.append(given[:2]))
    for more in ({"FARANDOLE_HTTPS": "yes", "FARANDOLE_PUBLIC_PORT": "8443"}, {"COMPOSE_PROFILES": "caddy"}):
        check_tls(deployment(tmp_path, FARANDOLE_DOMAIN="hub.test", **more))
    check_tls(deployment(tmp_path, FARANDOLE_DOMAIN="hub.test", FARANDOLE_HTTPS="yes", FARANDOLE_ORIGINS="one"))
    assert asked == [(["hub.test", "ada.hub.test"], 8443), (["hub.test", "ada.hub.test"], 443), (["hub.test"], 443)]
    for others in ({"FARANDOLE_DOMAIN": "hub.test"}, {"FARANDOLE_HTTPS": "yes"}, {"COMPOSE_PROFILES": "caddy"}):
        assert check_tls(deployment(tmp_path, **others)).level is Level.OK
    assert len(asked) == 3


# --- origins ---


def test_one_origin_is_named_as_a_danger(tmp_path: Path) -> None:
    found = check_origins(deployment(tmp_path, FARANDOLE_ORIGINS="one", FARANDOLE_BIND="0.0.0.0"))
    assert found.level is Level.WARNING
    assert "act as the user who opens it" in found.found


def test_a_hub_for_others_needs_a_domain(tmp_path: Path) -> None:
    for more in ({"FARANDOLE_BIND": "0.0.0.0"}, {"COMPOSE_PROFILES": "tls"}, {"FARANDOLE_HTTPS": "yes"}):
        found = check_origins(deployment(tmp_path, **more))
        assert (found.level, "the hub does not start" in found.found) == (Level.FAULT, True)
    found = check_origins(deployment(tmp_path, FARANDOLE_DOMAIN="10.0.0.5"))
    assert (found.level, found.remedy.startswith("It must be a host name")) == (Level.FAULT, True)
    assert check_origins(deployment(tmp_path)).level is Level.OK
    assert (
        check_origins(deployment(tmp_path, FARANDOLE_DOMAIN="hub.localhost", FARANDOLE_BIND="0.0.0.0")).level
        is Level.OK
    )


@pytest.mark.parametrize(
    ("names", "level", "said"),
    [
        ({"hub.test": {"10.0.0.5"}, "*": {"10.0.0.5"}}, Level.OK, "lead to 10.0.0.5"),
        ({"hub.test": {"10.0.0.5"}}, Level.FAULT, "no address of *.hub.test."),
        ({}, Level.FAULT, "no address of hub.test and *.hub.test."),
        ({"hub.test": {"10.0.0.5"}, "*": {"10.0.0.6"}}, Level.WARNING, "hub.test leads to 10.0.0.5, and *.hub.test to"),
    ],
)
def test_the_names_below_the_domain_lead_to_the_hub(names: dict[str, set[str]], level: Level, said: str) -> None:
    found = judge_names("hub.test", lambda host: names.get(host if host == "hub.test" else "*", set()))
    assert found.level is level
    assert said in found.found


def test_the_certificate_is_for_the_hosts_of_users(tmp_path: Path) -> None:
    folder = make_pair(tmp_path / "tls", names=["hub.example.org"])
    user = os.getuid()
    (folder / "tls.key").chmod(0o600)
    found = judge_folder(folder, user, domain="hub.example.org", users=True)
    assert (found.level, "is not for *.hub.example.org." in found.found) == (Level.FAULT, True)
    assert judge_folder(folder, user, domain="hub.example.org").level is Level.OK
