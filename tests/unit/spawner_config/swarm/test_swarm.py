"""Tests for the spawner of a swarm, with a fake swarm that stores services in a dictionary."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import requests
from docker.errors import NotFound
from jupyterhub.spawner import SpawnException

from spawner_config.shares import Shares
from spawner_config.swarm import spawner as swarm_spawner
from spawner_config.swarm.home_volumes import SwarmVolumes
from spawner_config.swarm.services import NodeNeeds
from spawner_config.swarm.shared_home import SharedHome
from spawner_config.swarm.spawner import FarandoleSwarmSpawner, set_place

if TYPE_CHECKING:
    from collections.abc import Callable

NO_NODE = "no suitable node (insufficient resources on 2 nodes)"
NETWORK = "farandole-user-ada"
SERVER = "farandole-server-ada--main-w0-1dedeb1f"


def absent() -> NotFound:
    return NotFound("", response=requests.Response())


class Swarm:
    """A fake swarm with the methods of the engine's client. ``fits`` returns the node that meets the constraints."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.services: dict[str, dict[str, Any]] = {}
        self.leaving: list[dict[str, Any]] = []
        self.volumes: dict[str, dict[str, str]] = {}
        self.fits: Callable[[list[str]], str | None] = lambda constraints: self.named(constraints) or "node-a"
        self.state = "running"
        self.err = ""
        self.down: set[str] = set()
        self.labels: dict[str, dict[str, str]] = {}

    @staticmethod
    def named(constraints: list[str]) -> str | None:
        return next((each.removeprefix("node.id==") for each in constraints if each.startswith("node.id==")), None)

    def create_volume(self, name: str, *, labels: dict[str, str], **_: Any) -> dict[str, Any]:
        return {"Name": name, "Labels": self.volumes.setdefault(name, labels)}

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        return getattr(self, f"_{method}")(*args, **options)

    def _nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "ID": key,
                "Spec": {"Availability": "active", "Labels": self.labels.get(key, {})},
                "Status": {"State": "down" if key in self.down else "ready"},
                "Description": {"Hostname": f"pc-{key[-1]}", "Resources": {}},
            }
            for key in ("node-a", "node-b")
        ]

    def _services(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        assert filters == {"label": ["farandole.hub=farandole"]}
        return [{"Spec": {"Labels": service["labels"]}} for service in self.services.values()]

    def _create_service(self, template: Any, *, name: str, **options: Any) -> dict[str, str]:
        assert name not in self.services
        self.made.append({"template": template, "name": name, **options})
        self.services[name] = self.made[-1]
        return {"ID": f"id-{len(self.made)}"}

    def _inspect_service(self, name: str) -> dict[str, Any]:
        return {"ID": "old"} if name in self.services else self._absent()

    def _remove_service(self, name: str) -> None:
        if name not in self.services:
            raise absent()
        del self.services[name]

    def _tasks(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        if "label" in filters:
            return [self.leaving.pop()] if self.leaving else []
        if filters["service"] not in self.services:
            raise absent()
        return [self.task(self.services[filters["service"]])]

    def task(self, service: dict[str, Any]) -> dict[str, Any]:
        node = self.fits(service["template"]["Placement"]["Constraints"])
        status = {"State": self.state, "Err": self.err} if node else {"State": "pending", "Err": NO_NODE}
        return {
            "CreatedAt": "2026-11-22",
            "Status": status,
            "DesiredState": "running",
            "NodeID": node or "",
            "NetworksAttachments": [{"Network": {"Spec": {"Name": NETWORK}}, "Addresses": ["10.213.0.3/25"]}],
        }

    @staticmethod
    def _absent() -> Any:
        raise absent()


class Networks:
    async def release(self, *_: Any) -> None:
        return None


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Swarm:
    for name, value in (("POLL_SECONDS", 0.01), ("CHOSEN_SECONDS", 0.05), ("PLACE_SECONDS", 0.05)):
        monkeypatch.setattr(swarm_spawner, name, value)
    return Swarm()


def spawner_of(engine: Swarm, server: str = "main-w0", **more: Any) -> Any:
    shared = SwarmVolumes(engine, Shares(), None, name="farandole")  # type: ignore[arg-type]
    common = {
        "shared_volumes": shared,
        "networks": Networks(),
        "hub_label": "farandole",
        "hub_node": "node-hub",
        "choosing": asyncio.Lock(),
        "placing": set(),
        "docker": lambda _self, method, *args, **options: engine.ask(method, *args, **options),
        "get_env": lambda _self: {"A": "1"},
    }
    user = SimpleNamespace(name="ada", groups=[], escaped_name="ada")
    orm_spawner = SimpleNamespace(name=server, state=None, server=None)
    made: Any = type("Spawner", (FarandoleSwarmSpawner,), common)(user=user, orm_spawner=orm_spawner)
    made.prefix, made.image = "farandole-server", "farandole-notebook:1"
    made.cmd, made.network_name = ["python"], NETWORK
    made.volumes = {"farandole-home-ada": "/home/user"}
    for key, value in more.items():
        setattr(made, key, value)
    return made


async def start(spawner: Any) -> Any:
    """Start a server with the same steps as dockerspawner, but without the hub's wait for the server to respond."""
    made = await spawner.create_object()
    spawner.object_id = made["ID"]
    await spawner.start_object()
    return await spawner.get_ip_and_port()


async def test_a_worker_starts_in_its_users_network_and_has_its_tasks_address(engine: Swarm) -> None:
    assert await start(spawner_of(engine)) == ("10.213.0.3", 8888)
    [made] = engine.made
    assert made["name"] == SERVER
    assert made["endpoint_spec"] == {"Mode": "dnsrr"}
    assert made["labels"] == {
        "farandole.hub": "farandole",
        "farandole.network": NETWORK,
        "farandole.server": SERVER,
        "farandole.node": "node-a",
        "farandole.cluster": "ada/main",
    }


async def test_two_workers_that_start_together_have_two_nodes(engine: Swarm) -> None:
    spawners = [spawner_of(engine, f"main-w{index}") for index in range(2)]
    for each in spawners:
        each.__class__.choosing = spawners[0].choosing
    await asyncio.gather(*(start(each) for each in spawners))
    assert {made["labels"]["farandole.node"] for made in engine.made} == {"node-a", "node-b"}


async def test_a_worker_starts_on_another_node_if_the_chosen_one_has_no_room(engine: Swarm) -> None:
    engine.fits = lambda constraints: None if engine.named(constraints) else "node-b"
    await start(spawner_of(engine))
    first, second = engine.made
    assert first["template"]["Placement"]["Constraints"] == ["node.id==node-a"]
    assert second["template"]["Placement"]["Constraints"] == []
    assert "farandole.node" not in second["labels"]


async def test_servers_prefer_the_node_that_has_the_data_set_of_their_profile(engine: Swarm) -> None:
    engine.labels["node-b"] = {"farandole.data.digits-v2": "yes"}
    needs = NodeNeeds(data=("farandole.data.digits-v2",))
    for server in ("main-w0", "main-w1"):
        await start(spawner_of(engine, server, needs=needs))
    shared_homes = spawner_of(engine, "", needs=needs)
    shared_homes.shared_volumes._folder = SharedHome(path="/mnt/homes")
    shared_homes.shared_volumes._made.add("farandole-home-ada")
    await start(shared_homes)
    await start(spawner_of(engine, "lab", needs=needs))
    nodes = [made["template"]["Placement"]["Constraints"] for made in engine.made]
    # Without shared homes, a notebook server stays where the home is.
    assert nodes == [["node.id==node-b"]] * 3 + [["node.id==node-hub"]]


async def test_a_server_starts_without_its_data_set_if_no_node_with_it_has_room(engine: Swarm) -> None:
    engine.labels["node-b"] = {"farandole.data.digits-v2": "yes"}
    engine.fits = lambda constraints: None if engine.named(constraints) == "node-b" else "node-a"
    await start(spawner_of(engine, needs=NodeNeeds(data=("farandole.data.digits-v2",))))
    assert [made["template"]["Placement"]["Constraints"] for made in engine.made] == [["node.id==node-b"], []]


async def test_an_unschedulable_server_fails_soon_with_the_swarms_reason(engine: Swarm) -> None:
    engine.fits = lambda _constraints: None
    with pytest.raises(SpawnException, match=r"no suitable node \(insufficient resources on 2 nodes\)") as refused:
        await asyncio.wait_for(start(spawner_of(engine)), 20)
    assert "%cluster start --wait" in refused.value.jupyterhub_message


async def test_a_waiting_server_shows_the_reason_and_starts_when_there_is_room(engine: Swarm) -> None:
    engine.fits = lambda _constraints: None
    spawner = spawner_of(engine, wait_for_gpus=True)
    starting = asyncio.create_task(start(spawner))
    events = spawner.progress()
    shown = [await anext(events), await anext(events)]
    assert (shown[1]["queue"], shown[1]["message"]) == (1, f"Waiting for a place in the swarm: {NO_NODE}")
    engine.fits = lambda _constraints: "node-b"
    last = await anext(events)
    assert last["queue"] == 0
    assert await starting == ("10.213.0.3", 8888)


async def test_a_node_without_the_image_is_reported(engine: Swarm) -> None:
    engine.state, engine.err = "rejected", "No such image: farandole-notebook:1"
    with pytest.raises(SpawnException, match=r"on pc-a \(rejected: No such image: farandole-notebook:1\).*load it on"):
        await start(spawner_of(engine))


@pytest.mark.parametrize(
    ("state", "err", "status"),
    [("running", "", None), ("starting", "", None), ("failed", "non-zero exit (137)", "failed: non-zero exit (137)")],
)
async def test_poll_returns_how_the_task_ended(engine: Swarm, state: str, err: str, status: str | None) -> None:
    spawner = spawner_of(engine)
    await start(spawner)
    engine.state, engine.err = state, err
    assert await spawner.poll() == status


async def test_poll_reports_a_server_without_a_service(engine: Swarm) -> None:
    assert await spawner_of(engine).poll() == 0


async def test_the_service_of_an_ended_task_is_removed(engine: Swarm) -> None:
    spawner = spawner_of(engine)
    await start(spawner)
    engine.state = "failed"
    await spawner.run_post_stop_hook()
    assert engine.services == {}


async def test_a_name_is_free_once_the_old_container_is_removed(engine: Swarm) -> None:
    spawner = spawner_of(engine)
    await start(spawner)
    engine.leaving = [engine.task(engine.made[0])] * 3
    await spawner.remove_object()
    assert (engine.leaving, engine.services) == ([], {})


async def test_a_node_that_does_not_answer_delays_a_stop_for_a_limited_time(
    engine: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm_spawner, "GONE_SECONDS", 0.05)
    spawner = spawner_of(engine)
    await start(spawner)
    engine.leaving = [engine.task(engine.made[0])] * 10_000
    await asyncio.wait_for(spawner.remove_object(), 20)
    assert engine.leaving


async def test_a_stop_does_not_wait_for_a_node_that_is_down(engine: Swarm) -> None:
    spawner = spawner_of(engine)
    await start(spawner)
    engine.leaving = [engine.task(engine.made[0])] * 10_000
    engine.down = {"node-a"}
    await asyncio.wait_for(spawner.remove_object(), 5)
    assert engine.leaving


@pytest.mark.parametrize(("server", "constraints"), [("", ["node.id==node-hub"]), ("main-w0", ["node.id==node-a"])])
async def test_a_notebook_starts_on_the_node_of_its_home(engine: Swarm, server: str, constraints: list[str]) -> None:
    await start(spawner_of(engine, server))
    assert engine.made[0]["template"]["Placement"]["Constraints"] == constraints


async def test_a_home_of_another_user_starts_no_service(engine: Swarm) -> None:
    engine.volumes["farandole-home-ada"] = {"farandole.owner": "another"}
    with pytest.raises(SpawnException, match="volume farandole-home-ada belongs to the user 'another'"):
        await start(spawner_of(engine, ""))
    assert not engine.made


async def test_a_service_gives_the_users_name_to_a_new_home_on_its_machine(engine: Swarm) -> None:
    await start(spawner_of(engine))
    mounts = engine.made[0]["template"]["ContainerSpec"]["Mounts"]
    [home] = [mount for mount in mounts if mount.get("Source") == "farandole-home-ada"]
    assert home["VolumeOptions"]["Labels"]["farandole.owner"] == "ada"
    assert engine.volumes["farandole-home-ada"]["farandole.owner"] == "ada"


async def test_the_memory_of_a_profile_is_reserved(engine: Swarm) -> None:
    spawner = spawner_of(engine, "", mem_limit=4 << 30, cpu_limit=1.5)
    profile = SimpleNamespace(name="big", memory="2G")
    set_place({"big": NodeNeeds(gpus=1)}, spawner, profile)  # type: ignore[arg-type]
    await start(spawner)
    resources = engine.made[0]["template"]["Resources"]
    assert resources["Limits"] == {"MemoryBytes": 4 << 30, "NanoCPUs": 1_500_000_000, "Pids": 4096}
    assert resources["Reservations"] == {
        "MemoryBytes": 2 << 30,
        "GenericResources": [{"DiscreteResourceSpec": {"Kind": "GPU", "Value": 1}}],
    }


async def test_endpoints_run_on_machines_with_the_label_of_their_profile(
    engine: Swarm,
) -> None:
    needs = {"serving": NodeNeeds(node_labels={"serving": "yes"}), "gpu": NodeNeeds(gpus=1, gpu_class="big")}
    for server, name in (("serve-iris", "serving"), ("main-w0", "gpu")):
        spawner = spawner_of(engine, server, model_image="" if name == "gpu" else "127.0.0.1:5000/lab/iris:3")
        set_place(needs, spawner, SimpleNamespace(name=name, memory="2G"))  # type: ignore[arg-type]
        await start(spawner)
    endpoint, worker = (made["template"] for made in engine.made)
    assert endpoint["Placement"]["Constraints"] == ["node.labels.serving==yes"]
    assert "GenericResources" not in endpoint["Resources"]["Reservations"]
    assert worker["Placement"]["Constraints"][0] == "node.labels.farandole.gpu==big"
    assert worker["Resources"]["Reservations"]["GenericResources"]


@pytest.mark.parametrize(("image", "policy"), [("127.0.0.1:5000/lab/iris:3", "ifnotpresent"), ("", "skip")])
def test_the_hubs_machine_pulls_only_images_of_models(engine: Swarm, image: str, policy: str) -> None:
    spawner = spawner_of(engine, "serve-iris", model_image=image)
    set_place({"cpu": NodeNeeds()}, spawner, SimpleNamespace(name="cpu", memory=None))  # type: ignore[arg-type]
    assert spawner.pull_policy == policy


async def test_an_image_of_a_model_gets_no_files_of_its_user(engine: Swarm) -> None:
    await start(spawner_of(engine, "serve-iris", model_image="127.0.0.1:5000/lab/iris:3"))
    [shared_memory] = engine.made[0]["template"]["ContainerSpec"]["Mounts"]
    assert shared_memory["Target"] == "/dev/shm"
    assert engine.made[0]["template"]["Placement"]["Constraints"] == []


async def test_a_server_that_waits_for_room_does_not_count_as_starting(engine: Swarm) -> None:
    engine.fits = lambda _: None
    waiting = spawner_of(engine, "main", wait_for_gpus=True)
    queued = asyncio.create_task(start(waiting))
    async with asyncio.timeout(5):
        while not waiting.only_waiting:
            await asyncio.sleep(0.01)
    pending = {"spawn_pending": 3}
    waiting.user.settings = {"users": SimpleNamespace(count_active_users=lambda: pending)}
    waiting.concurrent_starts = 2
    await waiting.run_pre_spawn_hook()
    pending["spawn_pending"] = 4
    with pytest.raises(SpawnException, match="2 servers are starting. Try again") as caught:
        await waiting.run_pre_spawn_hook()
    assert caught.value.status_code == 429

    engine.fits = lambda _: "node-a"
    await queued
    assert waiting.only_waiting == 0


async def test_a_start_that_was_given_up_no_longer_waits(engine: Swarm) -> None:
    engine.fits = lambda _: None
    refused = spawner_of(engine, "main")
    with pytest.raises(SpawnException, match="no place"):
        await start(refused)
    assert refused.only_waiting == 0
