"""Tests that the filter accepts only services with the structure that our spawner gives them."""

from __future__ import annotations

import copy
import json
from ipaddress import IPv4Network
from typing import Any

import pytest
from docker.types import Mount

from hub.engine_filter.admission import Admission, Call
from hub.engine_filter.containers import rebuild_container
from hub.engine_filter.engine import EngineError
from hub.engine_filter.networks import rebuild_connect, rebuild_network, rebuild_volume
from hub.engine_filter.refused import RefusedError
from hub.engine_filter.routes import find
from hub.engine_filter.rules import Rules
from spawner_config.settings import SettingsError
from spawner_config.swarm.services import NodeNeeds, task_template
from spawner_config.swarm.shared_home import SharedHome

IMAGE = "farandole-notebook:0.1.0"
OURS = {"farandole.hub": "farandole"}
HOMES = SharedHome(server="10.0.0.5", path="/export")
RULES = Rules(deployment="swarm", homes=HOMES, shared_volumes=("mnist",), addresses=IPv4Network("10.213.0.0/16"))


class FakeEngine:
    """A fake engine that returns the object stored in ``there`` for a path, and a 404 error for all other paths."""

    there: dict[str, Any] = {  # noqa: RUF012 - nobody changes it
        "/networks/farandole-user-ada": {"Id": "net-id", "Name": "farandole-user-ada", "Labels": OURS},
        "/networks/back": {"Id": "b", "Name": "back", "Labels": {**OURS, "farandole.role": "service"}},
        "/services/ours": {"ID": "service-id", "Spec": {"Labels": OURS}},
        "/services/foreign": {"ID": "other", "Spec": {"Labels": {}}},
        "/volumes/digits-v4": {"Name": "digits-v4", "Labels": {}},
        "/volumes/digits-v5": {"Name": "digits-v5", "Labels": OURS},
        "/nodes/pc-2": {"ID": "node-id", "Spec": {"Role": "worker", "Labels": {"disk": "fast"}}},
        f"/images/{IMAGE}/json": {"Config": {"User": "user"}},
        "/images/farandole-notebook:root/json": {"Config": {"User": ""}},
    }

    async def inspect(self, path: str) -> Any:
        if path not in self.there:
            raise EngineError(404, b"")
        return self.there[path]


def sent() -> dict[str, Any]:
    """Return the body of a request to create a service, as the spawner sends it."""
    home = Mount(
        "/home/user",
        "farandole-home-ada",
        no_copy=True,
        labels=OURS,
        driver_config={"Name": "local", "Options": HOMES.options("farandole-home-ada", "farandole")},
    )
    task = task_template(
        image=IMAGE,
        command=["python", "-m", "jupyterhub.singleuser"],
        environment={"A": "1", "NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=[home, Mount("/data/mnist", "mnist", read_only=True)],
        network="farandole-user-ada",
        needs=NodeNeeds(node_labels={"disk": "fast"}),
        constraints=["node.id==abc"],
        memory=1 << 30,
        cpus=2,
    )
    labels = {**OURS, "farandole.server": "farandole-server-ada"}
    return {
        "Name": "farandole-server-ada",
        "Labels": labels,
        "TaskTemplate": task,
        "Mode": None,
        "Networks": None,
        "EndpointSpec": {"Mode": "dnsrr"},
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the spawner's request body with one value replaced. ``path`` holds the value's keys, joined by dots."""
    body = copy.deepcopy(sent())
    *where, last = path.split(".")
    found = body
    for key in where:
        found = found.setdefault(key, {})
    found[last] = value
    return body


async def admit(body: dict[str, Any], rules: Rules = RULES) -> dict[str, Any]:
    admission = Admission(rules, FakeEngine())  # type: ignore[arg-type]
    call = Call(path="/services/create", parts={}, query={}, body=_json(body))
    outgoing = await admission.create_service(call)
    assert outgoing.body is not None
    return outgoing.body


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


async def test_requests_of_the_spawner_pass_unchanged_except_for_the_network_id() -> None:
    body = await admit(sent())
    task = body["TaskTemplate"]
    assert task["Networks"] == [{"Target": "net-id"}]
    assert task["ContainerSpec"]["CapabilityDrop"] == ["ALL"]
    assert task["ContainerSpec"]["Privileges"] == {"NoNewPrivileges": True}
    assert task["ContainerSpec"]["Healthcheck"] == {"Test": ["NONE"]}
    assert task["Placement"]["Constraints"] == ["node.labels.disk==fast", "node.id==abc"]
    assert task["RestartPolicy"] == {"Condition": "none"}
    home, data, memory = task["ContainerSpec"]["Mounts"]
    assert home["VolumeOptions"]["DriverConfig"]["Options"]["device"] == ":/export/farandole-home-ada"
    assert data["ReadOnly"]
    assert memory["Target"] == "/dev/shm"
    assert body["Labels"] == {**OURS, "farandole.server": "farandole-server-ada"}


async def test_required_fields_are_always_set() -> None:
    bare = changed("TaskTemplate.ContainerSpec", {"Image": IMAGE})
    bare.pop("Labels")
    bare.pop("EndpointSpec")
    body = await admit(bare)
    container = body["TaskTemplate"]["ContainerSpec"]
    assert container["CapabilityDrop"] == ["ALL"]
    assert container["Privileges"] == {"NoNewPrivileges": True}
    assert container["Env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert (body["Labels"], body["EndpointSpec"]) == (OURS, {"Mode": "dnsrr"})


C = "TaskTemplate.ContainerSpec"
RESERVED = "TaskTemplate.Resources.Reservations.GenericResources"


def gpu_count(value: int) -> dict[str, Any]:
    return {"DiscreteResourceSpec": {"Kind": "GPU", "Value": value}}


@pytest.mark.parametrize(("asked", "extra"), [([gpu_count(2)], []), ([], ["NVIDIA_VISIBLE_DEVICES=void"])])
async def test_a_service_without_gpus_sees_none(asked: list[Any], extra: list[str]) -> None:
    body = changed(RESERVED, asked)
    body["TaskTemplate"]["ContainerSpec"]["Env"] = ["A=1"]
    task = (await admit(body))["TaskTemplate"]
    assert task["ContainerSpec"]["Env"] == ["A=1", *extra]
    assert task["Resources"]["Reservations"]["GenericResources"] == asked


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("Name", "other-server", "does not belong to this hub"),
        ("Mode", {"Global": {}}, "Mode"),
        ("Labels", {"farandole.role": "service"}, "the hub's own services"),
        ("EndpointSpec", {"Mode": "dnsrr", "Ports": [{"PublishedPort": 22}]}, "Ports"),
        ("EndpointSpec", {"Mode": "vip"}, "Mode"),
        ("UpdateConfig", {"Parallelism": 2}, "UpdateConfig"),
        ("TaskTemplate.Runtime", "plugin", "Runtime"),
        ("TaskTemplate.RestartPolicy", {"Condition": "any"}, "Condition"),
        ("TaskTemplate.RestartPolicy", None, "RestartPolicy"),
        ("TaskTemplate.Networks", [], "one network"),
        ("TaskTemplate.Networks", [{"Target": "farandole-user-ada"}, {"Target": "back"}], "one network"),
        ("TaskTemplate.Networks", [{"Target": "farandole-user-ada", "Aliases": ["hub"]}], "Aliases"),
        ("TaskTemplate.Networks", [{"Target": "back"}], "the hub's own services"),
        (
            "TaskTemplate.Placement",
            {"Constraints": ["node.role==manager"]},
            "only constraints on a node's id and labels",
        ),
        ("TaskTemplate.Placement", {"Preferences": [{"Spread": {}}]}, "Preferences"),
        ("TaskTemplate.Resources.Limits", {"MemoryBytes": 1}, "Pids is missing"),
        ("TaskTemplate.Resources.Limits.Pids", 0, "Pids"),
        ("TaskTemplate.Resources.Reservations", {"GenericResources": [{"NamedResourceSpec": {"Kind": "x"}}]}, "Named"),
        ("TaskTemplate.LogDriver", {"Name": "syslog"}, "LogDriver.Name"),
        (f"{C}.Image", "debian", "not among the allowed"),
        (f"{C}.Image", "farandole-notebook:root", "runs as root"),
        (f"{C}.User", "0", "other than 0"),
        (f"{C}.Env", ["NVIDIA_VISIBLE_DEVICES=all"], "only HostConfig.DeviceRequests"),
        (f"{C}.Env", ["DOCKER_RESOURCE_GPU=all"], "DOCKER_RESOURCE_GPU: only HostConfig.DeviceRequests"),
        (f"{C}.Env", ["DOCKER_RESOURCE_GPU"], "DOCKER_RESOURCE_GPU: only HostConfig.DeviceRequests"),
        (f"{C}.CapabilityAdd", ["SYS_ADMIN"], "CapabilityAdd"),
        (f"{C}.Sysctls", {"kernel.x": "1"}, "Sysctls"),
        (f"{C}.Secrets", [{"SecretID": "x"}], "Secrets"),
        (f"{C}.Configs", [{"ConfigID": "x"}], "Configs"),
        (f"{C}.Hosts", ["1.2.3.4 hub"], "Hosts"),
        (f"{C}.Privileges", {"CredentialSpec": {"File": "x"}}, "CredentialSpec"),
        (f"{C}.Privileges", {"Seccomp": {"Mode": "unconfined"}}, "Seccomp"),
        (f"{C}.Healthcheck", {"Test": ["CMD", "id"]}, "Test"),
        (f"{C}.Mounts", [{"Type": "bind", "Source": "/", "Target": "/x"}], "Type"),
        (f"{C}.Mounts", [{"Type": "cluster", "Source": "x", "Target": "/x"}], "Type"),
        (f"{C}.Mounts", [{"Type": "tmpfs", "Target": "/etc"}], "Target"),
        (f"{C}.Mounts", [{"Type": "tmpfs", "Target": "/dev/shm", "TmpfsOptions": {"Options": [["exec"]]}}], "Options"),
        (f"{C}.Mounts", [{"Type": "volume", "Source": "other", "Target": "/x"}], "does not belong to this hub"),
        (f"{C}.Mounts", {}, "must be a list"),
        (f"{C}.Mounts", [{}], "must each have Type"),
        (f"{C}.Mounts", [None], "must be an object"),
        (f"{C}.Mounts", [{"Source": "farandole-home-ada", "Target": "/x"}], "must each have Type"),
        (RESERVED, [{}], "Value of 1 or more"),
        (RESERVED, [{"DiscreteResourceSpec": {}}], "Value of 1 or more"),
        (RESERVED, [{"DiscreteResourceSpec": None}], "Value of 1 or more"),
        (RESERVED, [{"DiscreteResourceSpec": {"Value": 1}}], "of Kind GPU"),
        (RESERVED, [{"DiscreteResourceSpec": {"Kind": "GPU"}}], "Value of 1 or more"),
        (RESERVED, [gpu_count(0)], "Value of 1 or more"),
        (RESERVED, [gpu_count(1), gpu_count(-1)], "Value of 1 or more"),
    ],
)
async def test_anything_else_is_refused_by_name(path: str, value: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        await admit(changed(path, value))


def volume(source: str, **options: str) -> list[dict[str, Any]]:
    driver = {"Name": "local", "Options": options}
    return [{"Type": "volume", "Source": source, "Target": "/x", "VolumeOptions": {"DriverConfig": driver}}]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("farandole-home-ada", {"type": "none", "o": "bind", "device": "/etc"}),
        ("farandole-home-ada", HOMES.options("farandole-home-grace", "farandole")),
        ("farandole-home-ada", {**HOMES.options("farandole-home-ada", "farandole"), "more": "1"}),
        ("mnist", HOMES.options("mnist", "farandole")),
    ],
)
async def test_a_volume_is_only_where_the_administrator_configured_it(source: str, options: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match="only FARANDOLE_SWARM_HOMES sets"):
        await admit(changed(f"{C}.Mounts", volume(source, **options)))


async def test_without_a_shared_folder_no_volume_has_options() -> None:
    rules = Rules(deployment="swarm")
    home = volume("farandole-home-ada", **HOMES.options("farandole-home-ada", "farandole"))
    with pytest.raises(RefusedError, match="only FARANDOLE_SWARM_HOMES sets"):
        await admit(changed(f"{C}.Mounts", home), rules)


def making(**changes: Any) -> dict[str, Any]:
    """Return the request body for a container that creates a home's folder, as `shared_home` sends it via docker-py."""
    driver = {"Name": "local", "Options": HOMES.options("farandole-homes", "farandole")}
    whole = {
        "Type": "volume",
        "Source": "farandole-homes",
        "Target": "/homes",
        "ReadOnly": False,
        "VolumeOptions": {"NoCopy": True, "Labels": OURS, "DriverConfig": driver},
    }
    return {
        "Image": IMAGE,
        "Cmd": None,
        "Env": None,
        "User": None,
        "Labels": OURS,
        "Entrypoint": ["mkdir", "--parents", "--mode=700", "/homes/farandole-home-ada"],
        "HostConfig": {"NetworkMode": "none", "Mounts": [whole]},
        **changes,
    }


async def test_only_the_command_that_makes_a_folder_mounts_all_homes() -> None:
    admission = Admission(RULES, FakeEngine())  # type: ignore[arg-type]
    call = Call(path="/containers/create", parts={}, query={}, body=_json(making()))
    body = (await admission.create_container(call)).body
    assert body is not None
    assert body["Entrypoint"] == making()["Entrypoint"]
    assert body["HostConfig"]["NetworkMode"] == "none"
    assert body["HostConfig"]["Mounts"] == making()["HostConfig"]["Mounts"]


FOLDER = "/homes/farandole-home-ada"
HOME = "farandole-home-ada:/home/user"


@pytest.mark.parametrize(
    "changes",
    [
        # A volume of that name would follow the link and expose the machine's root folder.
        {"Entrypoint": ["ln", "-s", "/", "/homes/farandole-home-x"]},
        {"Entrypoint": None},
        {"Entrypoint": None, "Cmd": ["mkdir", "--parents", "--mode=700", FOLDER]},
        {"Entrypoint": ["mkdir", FOLDER]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", "-Z", FOLDER]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", "/homes"]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", "farandole-home-ada"]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", "/homes/other"]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", f"{FOLDER}/deeper"]},
        {"Entrypoint": ["mkdir", "--parents", "--mode=700", "/homes/farandole-/../x"]},
        {"Cmd": ["/homes/farandole-home-bo"]},
        {"Env": ["LD_PRELOAD=/homes/farandole-home-x/evil.so"]},
        {"User": "1001"},
        {"WorkingDir": "/homes"},
        {"Healthcheck": {"Test": ["CMD", "ln", "-s", "/", "/homes/farandole-home-x"]}},
        {"HostConfig": {**making()["HostConfig"], "NetworkMode": "farandole-user-ada"}},
        {"HostConfig": {**making()["HostConfig"], "Binds": [HOME]}},
        {"HostConfig": {"NetworkMode": "none", "Binds": ["farandole-homes:/usr/bin"]}},
        {"HostConfig": {"NetworkMode": "farandole-user-ada", "Binds": ["farandole-homes:/homes:ro"]}},
        {"HostConfig": {"NetworkMode": "none", "Binds": [HOME]}},
        {"HostConfig": {"NetworkMode": "none"}},
    ],
)
def test_no_other_container_mounts_all_homes(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="'farandole-homes' or run without a network only to create a user's folder"):
        rebuild_container(RULES, making(**changes))


def publishing(folder: str = "data/digits", version: str = "digits-v3", **changes: Any) -> dict[str, Any]:
    """Return the body of the request that creates the container which publishes a folder."""
    entrypoint = ["python", "-I", "-m", "farandole.datasets.versions", "publish", f"/home/user/{folder}", "/groups"]
    home, volume = Mount("/home/user", "farandole-home-ada", read_only=True), Mount("/groups", version, labels=OURS)
    host = {"NetworkMode": "none", "ReadonlyRootfs": True, "Mounts": [home, volume]}
    return {"Image": IMAGE, "Labels": OURS, "Entrypoint": entrypoint, "HostConfig": host, **changes}


async def create(body: dict[str, Any]) -> dict[str, Any]:
    call = Call(path="/containers/create", parts={}, query={}, body=_json(body))
    outgoing = (await Admission(RULES, FakeEngine()).create_container(call)).body  # type: ignore[arg-type]
    assert outgoing is not None
    return outgoing


@pytest.mark.parametrize("version", ["digits-v3", "digits-v5"])
async def test_only_the_command_that_publishes_mounts_a_volume_that_is_not_the_hubs(version: str) -> None:
    body = await create(publishing(version=version))
    assert body["Entrypoint"] == publishing()["Entrypoint"]
    home, volume = body["HostConfig"]["Mounts"]
    assert (home["Source"], home["ReadOnly"], volume["Source"], volume["ReadOnly"]) == (
        "farandole-home-ada",
        True,
        version,
        False,
    )
    assert volume["VolumeOptions"] == {"Labels": OURS}


async def test_a_version_of_others_is_not_written() -> None:
    with pytest.raises(RefusedError, match="'digits-v4' does not belong to this hub"):
        await create(publishing(version="digits-v4"))


def mounting(*mounts: Mount, **host: Any) -> dict[str, Any]:
    return publishing(HostConfig={"NetworkMode": "none", "Mounts": list(mounts), **host})


READ = Mount("/home/user", "farandole-home-ada", read_only=True)
WRITE = Mount("/groups", "digits-v3")


@pytest.mark.parametrize(
    "body",
    [
        publishing(version="digits"),
        publishing(version="mnist-v0"),
        publishing(version="farandole-home-bo-v1"),
        publishing(version="farandole-homes"),
        publishing(Entrypoint=None),
        publishing(Entrypoint=["sh", "-c", "rm -r /groups"]),
        publishing(Entrypoint=[*publishing()["Entrypoint"], "--result", "/groups/x"]),
        publishing(Entrypoint=[word for word in publishing()["Entrypoint"] if word != "-I"]),
        publishing(Entrypoint=[*publishing()["Entrypoint"][:-2], "/etc", "/groups"]),
        publishing(Entrypoint=[*publishing()["Entrypoint"][:-1], "/home/user"]),
        publishing(Env=["LD_PRELOAD=/home/user/evil.so"]),
        publishing(User="1001"),
        publishing(WorkingDir="/home/user"),
        publishing(Cmd=["--result", "/groups/x"]),
        mounting(Mount("/home/user", "farandole-home-ada"), WRITE),
        mounting(Mount("/usr", "farandole-home-ada", read_only=True), WRITE),
        mounting(Mount("/home/user", "farandole-homes", read_only=True), WRITE),
        mounting(READ, Mount("/data", "digits-v3")),
        mounting(READ, WRITE, Mount("/groups", "web-v1")),
        mounting(READ),
        mounting(WRITE, READ),
        mounting(READ, WRITE, NetworkMode="farandole-user-ada"),
    ],
)
def test_no_other_container_writes_a_version(body: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        rebuild_container(RULES, body)


def test_a_version_that_is_shared_is_not_written() -> None:
    shared = Rules(shared_volumes=("digits-v3",))
    with pytest.raises(RefusedError, match="to publish a data set"):
        rebuild_container(shared, publishing())
    assert rebuild_container(Rules(), publishing())["HostConfig"]["Mounts"][1]["ReadOnly"] is False


async def test_a_node_gets_labels_for_data_sets_only() -> None:
    labels = {"disk": "slow", "farandole.data.digits-v3": "yes"}
    body = _json({"Role": "manager", "Availability": "drain", "Labels": labels})
    route, _, call = find("POST", "/v1.45/nodes/pc-2/update?version=7", body)
    outgoing = await route.decide(Admission(RULES, FakeEngine()), call)  # type: ignore[arg-type]
    assert (outgoing.path, outgoing.query) == ("/nodes/node-id/update", {"version": "7"})
    kept = {"disk": "fast", "farandole.data.digits-v3": "yes"}
    assert outgoing.body == {"Role": "worker", "Labels": kept}
    with pytest.raises(RefusedError, match="not swarm"):
        await route.decide(Admission(Rules(), FakeEngine()), call)  # type: ignore[arg-type]


async def test_no_service_mounts_all_homes() -> None:
    whole = volume("farandole-homes", **HOMES.options("farandole-homes", "farandole"))
    with pytest.raises(RefusedError, match="no server may mount it"):
        await admit(changed(f"{C}.Mounts", whole))


async def test_only_our_services_can_be_used_and_by_id() -> None:
    admission = Admission(RULES, FakeEngine())  # type: ignore[arg-type]

    def call(name: str) -> Call:
        return Call(path=f"/services/{name}", parts={"name": name}, query={}, body=b"")

    assert (await admission.service(call("ours"))).path == "/services/service-id"
    with pytest.raises(RefusedError, match="does not belong to this hub"):
        await admission.service(call("foreign"))


async def listed(path: str, filters: str) -> dict[str, str]:
    route, _, call = find("GET", f"/v1.45{path}?filters={filters}", b"")
    outgoing = await route.decide(Admission(RULES, FakeEngine()), call)  # type: ignore[arg-type]
    return outgoing.query


@pytest.mark.parametrize("more", ["", ',"farandole.hub"', ',"farandole.hub=other"', ',"farandole.hub=farandole"'])
async def test_only_our_objects_are_listed(more: str) -> None:
    for path in ("/services", "/tasks", "/containers/json"):
        query = await listed(path, f'{{"label":["a=b"{more}]}}')
        assert query == {"filters": '{"label": ["a=b", "farandole.hub=farandole"]}'}


@pytest.mark.parametrize("labels", ['{"farandole.hub":true}', "[1]", "true"])
async def test_labels_in_another_form_are_refused(labels: str) -> None:
    with pytest.raises(RefusedError, match="filters.label must be a"):
        await listed("/tasks", f'{{"label":{labels}}}')


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/swarm"),
        ("POST", "/swarm/leave"),
        ("GET", "/swarm/unlockkey"),
        ("GET", "/nodes/abc"),
        ("DELETE", "/nodes/abc"),
        ("POST", "/services/ours/update"),
        ("GET", "/services/ours/logs"),
        ("GET", "/secrets"),
        ("GET", "/configs"),
        ("GET", "/tasks/abc/logs"),
    ],
)
def test_nothing_else_of_a_swarm_is_reachable(method: str, path: str) -> None:
    with pytest.raises(RefusedError, match="not among the requests"):
        find(method, path, b"")


@pytest.mark.parametrize("path", ["/nodes", "/services/ours"])
async def test_without_a_swarm_there_are_no_services(path: str) -> None:
    route, _, call = find("GET", path, b"")
    with pytest.raises(RefusedError, match="not swarm"):
        await route.decide(Admission(Rules(), FakeEngine()), call)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="not swarm"):
        await admit(sent(), Rules())


def overlay(**changes: Any) -> dict[str, Any]:
    ipam = {"Driver": "default", "Config": [{"Subnet": "10.213.0.0/25", "IPRange": "10.213.0.0/26"}]}
    return {"Name": "farandole-user-ada", "Driver": "overlay", "Attachable": True, "IPAM": ipam, **changes}


def test_on_a_swarm_networks_are_overlays() -> None:
    made = rebuild_network(RULES, overlay())
    assert (made["Driver"], made["Attachable"], made["Labels"]) == ("overlay", True, OURS)
    for changes in ({"Driver": "bridge"}, {"Ingress": True}, {"Scope": "global"}, {"ConfigOnly": True}):
        with pytest.raises(RefusedError):
            rebuild_network(RULES, overlay(**changes))
    outside = {"Driver": "default", "Config": [{"Subnet": "10.213.0.0/25", "IPRange": "192.168.0.0/26"}]}
    with pytest.raises(RefusedError, match="must lie in FARANDOLE_SUBNETS"):
        rebuild_network(RULES, overlay(IPAM=outside))


def test_without_a_swarm_networks_are_bridges() -> None:
    with pytest.raises(RefusedError, match="Driver"):
        rebuild_network(Rules(), overlay())


def test_hub_and_proxy_may_choose_their_address_in_a_users_network() -> None:
    endpoint = {"Aliases": ["hub"], "IPAMConfig": {"IPv4Address": "10.213.0.126"}}
    assert rebuild_connect(RULES, {"Container": "c", "EndpointConfig": endpoint})["EndpointConfig"] == endpoint
    for address in ("10.0.0.1", "hub"):
        with pytest.raises(RefusedError, match="IPv4Address"):
            rebuild_connect(RULES, {"EndpointConfig": {"IPAMConfig": {"IPv4Address": address}}})


def test_the_deployment_is_one_of_two_values() -> None:
    assert Rules.from_environment({"FARANDOLE_DEPLOYMENT": "swarm"}).swarm
    assert not Rules.from_environment({}).swarm
    with pytest.raises(SettingsError, match="FARANDOLE_DEPLOYMENT is 'swarn'"):
        Rules.from_environment({"FARANDOLE_DEPLOYMENT": "swarn"})


def test_a_home_is_recorded_on_the_hubs_machine_as_the_folder_of_its_name() -> None:
    options = HOMES.options("farandole-home-ann", "farandole")
    body = {
        "Name": "farandole-home-ann",
        "Driver": "local",
        "DriverOpts": options,
        "Labels": {"farandole.owner": "ann"},
    }
    assert rebuild_volume(RULES, body) == {**body, "Labels": {"farandole.owner": "ann", **OURS}}
    for other in (HOMES.options("farandole-home-bo", "farandole"), {"type": "none", "o": "bind", "device": "/"}):
        with pytest.raises(RefusedError, match="DriverOpts.*only FARANDOLE_SWARM_HOMES sets where"):
            rebuild_volume(RULES, {**body, "DriverOpts": other})
