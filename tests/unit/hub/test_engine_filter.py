"""Tests for the filter, with a fake engine that answers from a dictionary and records the requests it receives."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hub.engine_filter.body import read_object
from hub.engine_filter.containers import rebuild_container
from hub.engine_filter.refused import RefusedError
from hub.engine_filter.rules import Rules
from hub.engine_filter.serve import LARGEST_BODY, make_app
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RULES = Rules(images=("farandole-notebook*", "host:5000/farandole-notebook*"), shared_volumes=("data-mnist",))
OURS = {"farandole.hub": "farandole"}
SERVICE = {**OURS, "farandole.role": "service"}
IMAGE = "farandole-notebook:0.1.0"


def container(labels: dict[str, str]) -> dict[str, Any]:
    return {"Id": "c" * 64, "Config": {"Labels": labels}}


def network(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"Id": f"{name}-id", "Name": name, "Labels": labels}


THERE = {
    "/containers/ours/json": container(OURS),
    "/containers/hub/json": container(SERVICE),
    "/containers/foreign/json": container({"farandole.hub": "another"}),
    "/networks/farandole-user-ann": network("farandole-user-ann", OURS),
    "/networks/engine": network("engine", SERVICE),
    "/networks/host": network("host", {}),
    "/networks/bridge": network("bridge", {}),
    "/volumes/farandole-home-ann": {"Name": "farandole-home-ann", "Labels": OURS},
    "/volumes/farandole-2-home-ann": {"Name": "farandole-2-home-ann", "Labels": {"farandole.hub": "farandole-2"}},
    "/volumes/farandole-state": {"Name": "farandole-state", "Labels": SERVICE},
    f"/images/{IMAGE}/json": {"Config": {"User": "user"}},
    "/images/farandole-notebook:root/json": {"Config": {"User": "0:0"}},
}


@dataclass
class FakeEngine:
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    follows: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method == "GET" and request.path in THERE:
            self.requests.append((request.method, request.raw_path, None))
            return web.json_response(THERE[request.path])
        if request.method == "GET" and request.path.startswith(("/containers/gone", "/volumes", "/images")):
            return web.json_response({"message": "No such thing"}, status=404)
        self.requests.append((request.method, request.raw_path, json.loads(body) if body else None))
        return await self.stream(request) if request.path == "/images/create" else web.json_response({"Id": "new"})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Auth-Seen": request.headers.get("X-Registry-Auth", "")})
        await response.prepare(request)
        await response.write(b"first")
        await self.follows.wait()
        await response.write(b"second")
        return response

    @property
    def last(self) -> tuple[str, str, Any]:
        return self.requests[-1]


@asynccontextmanager
async def serving(engine: FakeEngine, socket: Path) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", engine.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    async with TestClient(TestServer(make_app(RULES, str(socket)))) as client:
        yield client
    await runner.cleanup()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def client(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async with serving(engine, tmp_path / "engine.sock") as client:
        yield client


Client = TestClient[web.Request, web.Application]


def body(**host: Any) -> dict[str, Any]:
    """Return the body of a request to create a container, as dockerspawner sends it."""
    return {
        "Image": IMAGE,
        "Cmd": ["farandole-server"],
        "Env": ["A=1"],
        "User": None,
        "Tty": False,
        "AttachStdout": True,
        "ExposedPorts": {"8888/tcp": {}},
        "Volumes": {"/home/user": {}},
        "MacAddress": None,
        "HostConfig": {
            "NetworkMode": "farandole-user-ann",
            "Binds": ["farandole-home-ann:/home/user:rw"],
            "Links": [],
            "Memory": 1 << 30,
            "AutoRemove": True,
            "PortBindings": {},
            **host,
        },
    }


async def create(client: Client, sent: dict[str, Any] | str) -> tuple[int, str]:
    text = sent if isinstance(sent, str) else json.dumps(sent)
    async with client.post("/v1.41/containers/create?name=farandole-ann", data=text) as answer:
        return answer.status, (await answer.json()).get("message", "")


async def test_our_server_is_created_without_privileges_and_with_our_label(client: Client, engine: FakeEngine) -> None:
    assert (await create(client, body()))[0] == 200
    method, path, sent = engine.last
    assert (method, path) == ("POST", "/v1.41/containers/create?name=farandole-ann")
    assert sent == {
        "Image": IMAGE,
        "Cmd": ["farandole-server"],
        "Env": ["A=1", "NVIDIA_VISIBLE_DEVICES=void"],
        "Tty": False,
        "AttachStdout": True,
        "ExposedPorts": {"8888/tcp": {}},
        "Labels": OURS,
        "HostConfig": {
            "NetworkMode": "farandole-user-ann",
            "Memory": 1 << 30,
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Mounts": [
                {
                    "Type": "volume",
                    "Source": "farandole-home-ann",
                    "Target": "/home/user",
                    "ReadOnly": False,
                    "VolumeOptions": {"Labels": OURS},
                }
            ],
        },
    }


def mount(**changes: Any) -> dict[str, Any]:
    return {"Type": "volume", "Source": "farandole-x", "Target": "/x", **changes}


def gpu(**changes: Any) -> dict[str, Any]:
    return {"Driver": "nvidia", "DeviceIDs": ["0"], "Capabilities": [["gpu"]], **changes}


@pytest.mark.parametrize("size", ["20G", "512m", "10gb", "1073741824"])
async def test_a_limit_on_the_disk_of_a_container_is_admitted(client: Client, engine: FakeEngine, size: str) -> None:
    await create(client, {**body(StorageOpt={"size": size}), "Volumes": {}})
    assert engine.last[2]["HostConfig"]["StorageOpt"] == {"size": size}


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ({"Privileged": True}, "HostConfig.Privileged"),
        ({"privileged": True}, "HostConfig.privileged"),
        ({"PRIVILEGED": True}, "HostConfig.PRIVILEGED"),
        ({"\u212aernelMemory": 1}, "HostConfig.\u212aernelMemory"),
        ({"binds": ["/:/host"]}, "HostConfig.binds"),
        ({"CapAdd": ["SYS_ADMIN"]}, "CapAdd"),
        ({"Devices": [{"PathOnHost": "/dev/sda"}]}, "Devices"),
        ({"DeviceCgroupRules": ["a *:* rwm"]}, "DeviceCgroupRules"),
        ({"Binds": ["/:/host"]}, "not paths of the host"),
        ({"Binds": ["/var/run/docker.sock:/sock"]}, "not paths of the host"),
        ({"Binds": ["../x:/host"]}, "not paths of the host"),
        ({"Binds": ["foreign:/x"]}, "'foreign' does not belong to this hub"),
        ({"Binds": ["farandole-x:/x:rw,shared"]}, "Binds"),
        ({"Binds": ["farandole-2-home-ann:/x"]}, "'farandole-2-home-ann' does not belong to this hub"),
        ({"Binds": ["farandole-state:/x"]}, "only for the hub's own services"),
        ({"Mounts": [mount(Type="bind", Source="/")]}, "Mounts.Type"),
        ({"Mounts": [mount(Source="/etc")]}, "not paths of the host"),
        ({"Mounts": [mount(VolumeOptions={"DriverConfig": {"Options": {"o": "bind"}}})]}, "DriverConfig"),
        ({"Mounts": [mount(BindOptions={"Propagation": "shared"})]}, "BindOptions"),
        ({"Mounts": [{"Type": "volume", "Target": "/x"}]}, "Source"),
        ({"VolumesFrom": ["foreign"]}, "VolumesFrom"),
        ({"VolumeDriver": "evil"}, "VolumeDriver"),
        ({"NetworkMode": "host"}, "'host' does not belong to this hub"),
        ({"NetworkMode": "bridge"}, "'bridge' does not belong to this hub"),
        ({"NetworkMode": "container:foreign"}, "neither a name nor an id"),
        ({"NetworkMode": "../containers/ours"}, "neither a name nor an id"),
        ({"NetworkMode": "engine"}, "only for the hub's own services"),
        ({"NetworkMode": ""}, "NetworkMode is missing"),
        ({"PidMode": "host"}, "PidMode"),
        ({"IpcMode": "host"}, "IpcMode"),
        ({"UTSMode": "host"}, "UTSMode"),
        ({"UsernsMode": "host"}, "UsernsMode"),
        ({"CgroupnsMode": "host"}, "CgroupnsMode"),
        ({"CgroupParent": "/"}, "CgroupParent"),
        ({"Sysctls": {"kernel.x": "1"}}, "Sysctls"),
        ({"Runtime": "evil"}, "Runtime"),
        ({"SecurityOpt": ["seccomp=unconfined"]}, "SecurityOpt"),
        ({"SecurityOpt": ["no-new-privileges=false"]}, "SecurityOpt"),
        ({"MaskedPaths": ["/x"]}, "MaskedPaths"),
        ({"PortBindings": {"80/tcp": [{"HostPort": "80"}]}}, "PortBindings"),
        ({"PublishAllPorts": True}, "PublishAllPorts"),
        ({"RestartPolicy": {"Name": "always"}}, "RestartPolicy.Name"),
        ({"LogConfig": {"Type": "syslog"}}, "LogConfig.Type"),
        ({"OomKillDisable": True}, "OomKillDisable"),
        ({"StorageOpt": {"size": "all"}}, "StorageOpt.size"),
        ({"StorageOpt": {"size": "0"}}, "StorageOpt.size"),
        ({"StorageOpt": {"overlay2.override_kernel_check": "true"}}, "StorageOpt.overlay2"),
        ({"GroupAdd": ["0"]}, "GroupAdd"),
        ({"Tmpfs": {"/x": ""}}, "Tmpfs"),
        ({"ExtraHosts": ["a:1"]}, "ExtraHosts"),
        ({"Memory": "1g"}, "Memory must be a whole number"),
        ({"Init": "yes"}, "Init must be true or false"),
        ({"Ulimits": "many"}, "Ulimits must be a list"),
        ({"DeviceRequests": [gpu(Count=-1)]}, "DeviceRequests.Count"),
        ({"DeviceRequests": [gpu(DeviceIDs=["all"])]}, "DeviceIDs"),
        ({"DeviceRequests": [gpu(DeviceIDs=[])]}, "DeviceIDs"),
        ({"DeviceRequests": [gpu(DeviceIDs=["vendor.com/class=x"], Driver="cdi")]}, "DeviceIDs"),
        ({"DeviceRequests": [gpu(DeviceIDs=["nvidia.com/gpu=all"], Driver="cdi")]}, "DeviceIDs"),
        ({"DeviceRequests": [gpu(Driver="amd")]}, "Driver"),
        ({"DeviceRequests": [gpu(Capabilities=[["gpu", "utility"]])]}, "Capabilities"),
        ({"DeviceRequests": [gpu(Options={"a": "b"})]}, "Options"),
        ({"DeviceRequests": [{"Driver": "nvidia"}]}, "the ids of the GPUs"),
    ],
)
async def test_what_reaches_the_host_is_refused_by_name(
    client: Client, engine: FakeEngine, host: dict[str, Any], named: str
) -> None:
    status, message = await create(client, {**body(**host), "Volumes": {}})
    assert status == 403
    assert named in message
    assert all(method == "GET" for method, _, _ in engine.requests)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"Image": "debian:bookworm-slim"}, "not among the allowed images"),
        ({"Image": "farandole-notebook.evil:5000/x"}, "not among the allowed images"),
        ({"Image": "evil/farandole-notebook"}, "not among the allowed images"),
        ({"Image": "farandole-notebook?x"}, "not among the allowed images"),
        ({"Image": "farandole-notebook:root"}, "runs as root"),
        ({"User": "0"}, "User"),
        ({"User": "root"}, "User"),
        ({"User": "+0"}, "User"),
        ({"User": "00:0"}, "User"),
        ({"User": "1000:0"}, "User"),
        ({"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}, "NVIDIA_VISIBLE_DEVICES"),
        ({"Env": ["DOCKER_RESOURCE_GPU=all"]}, "DOCKER_RESOURCE_GPU"),
        ({"Env": {"A": "1"}}, "Env"),
        ({"Labels": {"farandole.role": "service"}}, "farandole.role"),
        ({"Volumes": {"/nameless": {}}}, "/nameless"),
        ({"hostconfig": {"Privileged": True}}, "hostconfig"),
        ({"HostConfig": ["x"]}, "HostConfig must be an object"),
        ({"MacAddress": "02:42:ac:11:00:02"}, "MacAddress"),
        ({"NetworkingConfig": {"EndpointsConfig": {"bridge": {}}}}, "'bridge' does not belong to this hub"),
        ({"NetworkingConfig": {"EndpointsConfig": {"farandole-user-ann": {"IPAddress": "1.2.3.4"}}}}, "IPAddress"),
        ({"NetworkingConfig": {"EndpointsConfig": {"engine": None}}}, "only for the hub's own services"),
    ],
)
async def test_other_keys_of_a_container_are_checked(client: Client, changes: dict[str, Any], named: str) -> None:
    status, message = await create(client, {**body(), **changes})
    assert status == 403
    assert named in message


@pytest.mark.parametrize(
    "raw",
    [
        '{"Image": "a", "Image": "b"}',
        '{"HostConfig": {"Privileged": false, "Privileged": true}}',
        "[]",
        "",
        "{",
        '{"StopTimeout": NaN}',
        "[" * 100_000,
    ],
)
async def test_ambiguous_json_is_refused(client: Client, raw: str) -> None:
    assert (await create(client, raw))[0] == 403


def test_json_must_be_utf8() -> None:
    with pytest.raises(RefusedError, match="cannot be read|not valid JSON"):
        read_object('{"a": 1}'.encode("utf-16"))


def test_gpus_are_requested_by_id_in_both_forms() -> None:
    requests = [gpu(), {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1"], "Count": 0, "Options": {}}]
    built = rebuild_container(RULES, body(DeviceRequests=requests))
    assert [request["DeviceIDs"] for request in built["HostConfig"]["DeviceRequests"]] == [["0"], ["nvidia.com/gpu=1"]]
    assert built["Env"] == ["A=1"]


def test_shared_volumes_are_read_only() -> None:
    built = rebuild_container(
        RULES, body(Binds=["data-mnist:/data:rw"], Mounts=[mount(Source="farandole-new")]) | {"Volumes": {}}
    )
    assert [(one["Source"], one["ReadOnly"]) for one in built["HostConfig"]["Mounts"]] == [
        ("data-mnist", True),
        ("farandole-new", False),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/containers/ours/exec"),
        ("POST", "/exec/abc/start"),
        ("POST", "/containers/ours/attach"),
        ("GET", "/containers/ours/attach/ws"),
        ("GET", "/containers/ours/archive?path=/"),
        ("PUT", "/containers/ours/archive?path=/"),
        ("GET", "/containers/ours/export"),
        ("POST", "/containers/ours/update"),
        ("POST", "/containers/ours/rename?name=x"),
        ("POST", "/containers/prune"),
        ("POST", "/build"),
        ("POST", "/commit?container=ours"),
        ("GET", "/events"),
        ("POST", "/swarm/init"),
        ("GET", "/secrets"),
        ("POST", "/plugins/pull"),
        ("POST", "/volumes/prune"),
        ("DELETE", "/volumes/farandole-home-ann"),
        ("POST", "/networks/prune"),
        ("POST", "/images/load"),
        ("DELETE", f"/images/{IMAGE}"),
        ("POST", "/images/create?fromSrc=-&repo=farandole-notebook"),
        ("POST", "/images/create?fromImage=farandole-notebook"),
        ("POST", "/images/create?fromImage=debian&tag=latest"),
        ("POST", "/images/create?fromImage=farandole-notebook&fromImage=debian&tag=1"),
        ("POST", "/images/create?fromImage=farandole-notebook&tag=1/../../x"),
        ("GET", "/images/debian/json"),
        ("GET", "/containers/create/json"),
        ("GET", "/v1.24/containers/ours/json"),
        ("GET", "/v2.0/containers/ours/json"),
        ("DELETE", "/containers/ours?link=1"),
        ("POST", "/containers/ours/start?detachKeys=x"),
        ("POST", "/session"),
        ("POST", "/grpc"),
        ("POST", "/auth"),
    ],
)
async def test_requests_that_the_spawner_does_not_need_are_refused(
    client: Client, engine: FakeEngine, method: str, path: str
) -> None:
    async with client.request(method, path) as answer:
        assert answer.status == 403
        assert "engine filter" in (await answer.json())["message"]
    assert engine.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/containers/../containers/foreign/json",
        "//containers/ours/json",
        "/containers//json",
        "/containers/ours%2f..%2fforeign/json",
        "/containers/%6furs/json",
        "/containers/../json",
        "/containers/./json",
        "/containers/ours/json/",
        "/images/farandole-notebook/../debian/json",
        "/images/farandole-notebook%2f..%2fdebian/json",
        "http://engine/containers/foreign/json",
        "/containers/ours/json#x",
    ],
)
async def test_path_tricks_do_not_pass_the_filter(client: Client, engine: FakeEngine, path: str) -> None:
    assert (await raw(client, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) in {400, 403, 404}
    assert not any("foreign" in sent or "debian" in sent for _, sent, _ in engine.requests)
    assert not any("ours" in sent for _, sent, _ in engine.requests)


async def raw(client: Client, request: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request.encode())
    status = await reader.readline()
    writer.close()
    return int(status.split()[1])


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /containers/ours/start HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        "GET /containers/ours/logs HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "CONNECT engine:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /containers/ours/start HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_no_connection_is_hijacked(client: Client, engine: FakeEngine, request_text: str) -> None:
    assert await raw(client, request_text) in {400, 403, 404}
    assert engine.requests == []


async def test_large_bodies_are_refused_even_in_chunks(client: Client) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_BODY // 65536 + 1):
            yield b" " * 65536

    async with client.post("/containers/create", data=chunks()) as answer:
        assert answer.status == 413
        assert "larger than" in (await answer.json())["message"]


ACTIONS = [
    ("GET", "/json"),
    ("GET", "/logs"),
    ("GET", "/stats"),
    ("POST", "/start"),
    ("POST", "/stop"),
    ("POST", "/kill"),
]
ACTIONS += [("POST", "/wait"), ("DELETE", "")]


@pytest.mark.parametrize(("method", "action"), ACTIONS)
async def test_only_our_containers_can_be_used_and_by_id(
    client: Client, engine: FakeEngine, method: str, action: str
) -> None:
    async def status(name: str) -> int:
        async with client.request(method, f"/v1.41/containers/{name}{action}") as answer:
            return answer.status

    assert await status("foreign") == 403
    assert await status("hub") == 403
    assert await status("gone") == 404
    assert await status("ours") == 200
    assert engine.last[:2] == (method, f"/v1.41/containers/{'c' * 64}{action}")


async def test_only_our_containers_are_listed(client: Client, engine: FakeEngine) -> None:
    async with client.get(
        "/containers/json", params={"all": "1", "filters": '{"label": ["farandole.user=ann"]}'}
    ) as got:
        assert got.status == 200
    assert "farandole.user%3Dann%22%2C%20%22farandole.hub%3Dfarandole" in engine.last[1]


async def test_the_hub_is_connected_to_our_networks_only(client: Client, engine: FakeEngine) -> None:
    async def connect(network: str, name: str, **more: Any) -> int:
        sent = {"Container": name, **more}
        async with client.post(f"/networks/{network}/connect", json=sent) as answer:
            return answer.status

    assert await connect("farandole-user-ann", "hub", EndpointConfig={"Aliases": ["hub"]}) == 200
    assert engine.last[1:] == (
        "/networks/farandole-user-ann-id/connect",
        {"Container": "c" * 64, "EndpointConfig": {"Aliases": ["hub"]}},
    )
    assert await connect("farandole-user-ann", "foreign") == 403
    assert await connect("farandole-user-ann", "ours", EndpointConfig={"IPAMConfig": {"IPv4Address": "1.2.3.4"}}) == 403
    assert await connect("host", "ours") == 403
    assert await connect("engine", "ours") == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"Name": "host"},
        {"Name": "a" * 64},
        {"Driver": "macvlan"},
        {"Options": {"com.docker.network.bridge.name": "eth0"}},
        {"Options": {"parent": "eth0"}},
        {"IPAM": {"Driver": "default", "Config": [{"Subnet": "192.168.1.0/24"}]}},
        {"IPAM": {"Driver": "default", "Config": [{"Subnet": "10.213.1.0/26", "Gateway": "10.213.1.2"}]}},
        {"IPAM": {"Driver": "evil"}},
        {"ConfigFrom": {"Network": "host"}},
        {"Attachable": True},
        {"Labels": {"farandole.role": "service"}},
    ],
)
async def test_networks_of_other_kinds_are_refused(client: Client, engine: FakeEngine, changes: dict[str, Any]) -> None:
    async with client.post("/networks/create", json={"Name": "farandole-user-bo", **changes}) as answer:
        assert answer.status == 403
    assert engine.requests == []


async def test_our_network_is_created_and_removed(client: Client, engine: FakeEngine) -> None:
    ipam = {"Driver": "default", "Config": [{"Subnet": "10.213.1.0/26", "IPRange": None, "Gateway": None}]}
    async with client.post("/networks/create", json={"Name": "farandole-user-bo", "IPAM": ipam, "Options": None}):
        pass
    assert engine.last[2] == {
        "Name": "farandole-user-bo",
        "IPAM": {"Driver": "default", "Config": [{"Subnet": "10.213.1.0/26"}]},
        "Labels": OURS,
        "Driver": "bridge",
        "CheckDuplicate": True,
    }
    async with client.delete("/networks/farandole-user-ann") as answer:
        assert answer.status == 200
    assert engine.last[:2] == ("DELETE", "/networks/farandole-user-ann-id")
    async with client.delete("/networks/engine") as answer:
        assert answer.status == 403


async def test_volumes_are_ours_and_never_a_folder_of_the_host(client: Client, engine: FakeEngine) -> None:
    options = {"type": "none", "o": "bind", "device": "/"}
    for refused in (
        {"Name": "farandole-x", "DriverOpts": options},
        {"Name": "foreign"},
        {"Name": "farandole-x", "Driver": "evil"},
        {"Name": "farandole-2-home-ann"},
        {"Name": "foreign", "DriverOpts": {"size": "1073741824"}},
        {"Name": "farandole-x", "DriverOpts": {"size": "1g,device=/"}},
        {"Name": "farandole-x", "DriverOpts": {"size": "1073741824", **options}},
        {},
    ):
        async with client.post("/volumes/create", json=refused) as answer:
            assert answer.status == 403, refused
    async with client.post("/volumes/create", json={"Name": "farandole-home-bo", "DriverOpts": None}) as answer:
        assert answer.status == 200
    assert engine.last[2] == {"Name": "farandole-home-bo", "Driver": "local", "Labels": OURS}
    quota = {"Name": "farandole-home-bo", "DriverOpts": {"size": "1073741824"}}
    async with client.post("/volumes/create", json=quota) as answer:
        assert answer.status == 200
    assert engine.last[2] == {**quota, "Driver": "local", "Labels": OURS}


async def test_a_pull_is_streamed_and_has_the_login(client: Client, engine: FakeEngine) -> None:
    query = {"fromImage": "host:5000/farandole-notebook", "tag": "0.1.0"}
    async with client.post("/images/create", params=query, headers={"X-Registry-Auth": "me"}) as answer:
        assert await answer.content.readany() == b"first"
        engine.follows.set()
        assert await answer.content.readany() == b"second"
    assert engine.last[1] == "/images/create?fromImage=host%3A5000%2Ffarandole-notebook&tag=0.1.0"


async def test_images_are_inspected_by_digest_too(client: Client) -> None:
    async with client.get("/images/farandole-notebook%40sha256%3Aabc/json") as answer:
        assert answer.status == 404


async def test_an_unreachable_engine_is_named(tmp_path: Path) -> None:
    server = TestServer(make_app(RULES, str(tmp_path / "none.sock")))
    async with TestClient(server) as client, client.get("/_ping") as answer:
        assert answer.status == 502
        assert "does not answer" in (await answer.json())["message"]


@pytest.mark.parametrize(
    "environ", [{"FARANDOLE_NAME": "No Good"}, {"FARANDOLE_NAME": "n" * 28}, {"FARANDOLE_SUBNETS": "10.0.0.1/8"}]
)
def test_invalid_settings_are_named(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(environ))):
        Rules.from_environment(environ)
