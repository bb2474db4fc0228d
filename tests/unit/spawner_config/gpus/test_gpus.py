from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docker
import pytest
import requests
from dockerspawner import DockerSpawner
from jupyterhub.spawner import SpawnException

from spawner_config.gpus.model import GpuRequest
from spawner_config.gpus.pool import GpuPool, NoGpuError
from spawner_config.gpus.requests import offered_form
from spawner_config.gpus.spawner import GpuSpawner
from spawner_config.profiles.profiles import parse_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 5.0


def pool(gpus: str = "0:big,1:big") -> GpuPool:
    return GpuPool(parse_gpus(gpus))


def asks(user: str, server: str = "", count: int = 1, gpu_class: str | None = None, together: int = 1) -> GpuRequest:
    return GpuRequest(user=user, server=server, count=count, gpu_class=gpu_class, together=together)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0)


async def test_no_gpu_is_shared_and_a_refusal_names_the_holders() -> None:
    gpus = pool()
    assert await gpus.acquire(asks("alice")) == ("0",)
    assert await gpus.acquire(asks("bob", gpu_class="big")) == ("1",)
    with pytest.raises(NoGpuError, match="1 GPU not available now. Of 2 GPUs alice holds 1 and bob holds 1. Stop"):
        await gpus.acquire(asks("carol"))
    gpus.release(("alice", ""))
    assert await gpus.acquire(asks("carol")) == ("0",)
    assert gpus.public() == {"big": {"total": 2, "free": 0, "held": {"bob": 1, "carol": 1}, "waiting": 0}}


async def test_a_request_gets_only_its_class() -> None:
    gpus = pool("0:big,1:small")
    assert await gpus.acquire(asks("alice", gpu_class="small")) == ("1",)
    with pytest.raises(NoGpuError, match="1 GPU of class small not available now. Of 1 GPU of class small alice"):
        await gpus.acquire(asks("bob", gpu_class="small"))
    assert await gpus.acquire(asks("bob")) == ("0",)


@pytest.mark.parametrize("wait", [True, False])
async def test_a_request_beyond_the_hosts_gpus_is_refused_immediately(wait: bool) -> None:
    with pytest.raises(NoGpuError, match="The start needs 4 GPUs, but this host has 2"):
        await pool().acquire(asks("alice", "main-w0", count=2, together=2), wait=wait)


async def test_the_queue_is_served_in_order_and_shows_the_place() -> None:
    gpus = pool("0:big")
    await gpus.acquire(asks("alice"))
    served: list[str] = []

    async def wait_for(user: str) -> None:
        await gpus.acquire(asks(user), wait=True)
        served.append(user)

    tasks = []
    for number, user in enumerate(("bob", "carol", "dan"), start=1):
        tasks.append(asyncio.create_task(wait_for(user)))
        await until(lambda number=number: len(gpus.waiting()) == number)  # type: ignore[misc]
    assert gpus.place(("carol", "")) == (2, "Waiting for 1 GPU, place 2 of 3 in the queue. Of 1 GPU alice holds 1.")
    tasks[0].cancel()
    await until(lambda: gpus.place(("carol", "")) == (1, gpus.place(("carol", ""))[1]))  # type: ignore[index]
    for holder in ("alice", "carol"):
        gpus.release((holder, ""))
        await until(lambda: gpus.free() == 0 and len(gpus.waiting()) == 2 - len(served))
        await until(lambda: served)
    await until(lambda: served == ["carol", "dan"])
    assert gpus.place(("carol", "")) is None


async def test_a_small_request_does_not_overtake_a_large_one_of_its_class() -> None:
    gpus = pool("0:big,1:big,2:small")
    await gpus.acquire(asks("alice", gpu_class="big"))
    large = asyncio.create_task(gpus.acquire(asks("bob", count=2, gpu_class="big"), wait=True))
    await until(gpus.waiting)
    with pytest.raises(NoGpuError, match="In the queue: 1"):
        await gpus.acquire(asks("carol", gpu_class="big"))
    assert await gpus.acquire(asks("carol", gpu_class="small")) == ("2",)
    gpus.release(("alice", ""))
    assert await large == ("0", "1")


async def test_two_clusters_do_not_deadlock() -> None:
    gpus = pool()
    tasks = [
        asyncio.create_task(gpus.acquire(asks(user, f"main-w{index}", together=2), wait=True))
        for index in range(2)
        for user in ("alice", "bob")
    ]
    await until(lambda: gpus.free() == 0)
    first = next(iter(gpus.holders()))
    assert gpus.holders() == {first: 2}
    for index in range(2):
        gpus.release((first, f"main-w{index}"))
    async with asyncio.timeout(SOON):
        await asyncio.gather(*tasks)
    assert gpus.holders() == {({"alice", "bob"} - {first}).pop(): 2}


async def test_a_cancelled_start_releases_gpus_assigned_at_the_same_moment() -> None:
    gpus = pool("0:big")
    await gpus.acquire(asks("alice"))
    waiting = asyncio.create_task(gpus.acquire(asks("bob"), wait=True))
    await until(gpus.waiting)
    gpus.release(("alice", ""))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (gpus.free(), gpus.waiting()) == (1, [])


async def test_fifty_starts_at_once() -> None:
    gpus = pool("0:big,1:big,2:small,3:small")
    most: Counter[str] = Counter()
    now: Counter[str] = Counter()
    draw = random.Random(0)

    async def serve(number: int) -> None:
        count, gpu_class = draw.choice([(1, None), (1, "big"), (2, "small"), (1, "small"), (3, None)])
        ids = await gpus.acquire(asks(f"user{number}", count=count, gpu_class=gpu_class), wait=True)
        assert len(ids) == count
        now.update(ids)
        most.update(dict.fromkeys(ids, 0))
        for id_ in ids:
            most[id_] = max(most[id_], now[id_])
        for _ in range(draw.randrange(5)):
            await asyncio.sleep(0)
        now.subtract(ids)
        gpus.release((f"user{number}", ""))

    async with asyncio.timeout(SOON):
        await asyncio.gather(*(serve(number) for number in range(50)))
    assert most == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert gpus.free() == 4


@pytest.mark.parametrize(
    ("info", "form"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": ["/etc/cdi"]}, "nvidia"),
        ({"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}, "cdi"),
        ({"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "cdi"),
        ({"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": "other.com/x=0"}]}, None),
        ({"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": []}, None),
        ({"Runtimes": {"runc": {}}}, None),
    ],
)
def test_the_request_has_the_engines_format(info: dict[str, Any], form: str | None) -> None:
    assert offered_form(info) == form


class FakeEngine:
    """A fake engine. ``containers`` maps the names of containers to their GPUs."""

    def __init__(self) -> None:
        self.containers: dict[str, list[str]] = {}
        self.info: dict[str, Any] = {"Runtimes": {"nvidia": {}}}
        self.removals_that_fail: list[Exception] = []
        self.start_error: Exception | None = None

    def remove(self, name: str) -> None:
        if self.removals_that_fail:
            raise self.removals_that_fail.pop()
        if name not in self.containers:
            raise docker.errors.NotFound("gone")
        del self.containers[name]


class FakeDockerSpawner(DockerSpawner):  # type: ignore[misc]
    engine: FakeEngine

    async def docker(self, method: str, *args: Any, **_options: Any) -> Any:
        await asyncio.sleep(0)
        return self.engine.info if method == "info" else self.engine.remove(*args)

    async def start(self) -> tuple[str, int]:
        requests_ = self.extra_host_config.get("device_requests", [])
        self.engine.containers[self.object_name] = [id_ for each in requests_ for id_ in each["device_ids"]]
        if self.engine.start_error:
            raise self.engine.start_error
        return "127.0.0.1", 1


class Site:
    """The spawners of one hub. They share one fake engine."""

    def __init__(self, gpus: str = "0:big,1:big") -> None:
        self.engine = FakeEngine()
        bases = (GpuSpawner, FakeDockerSpawner)
        self.kind = type("Fake", bases, {"gpu_pool": pool(gpus), "engine": self.engine})
        self.pool: GpuPool = self.kind.gpu_pool  # type: ignore[attr-defined]
        self.pool.complete = True
        self.pending = 1

    def spawner(self, user: str, server: str = "", **traits: Any) -> Any:
        database = SimpleNamespace(commit=lambda: None)
        orm_spawner = SimpleNamespace(name=server, state=None, server=None)
        users = SimpleNamespace(count_active_users=lambda: {"spawn_pending": self.pending})
        user_ = SimpleNamespace(name=user, db=database, settings={"users": users})
        spawner = self.kind(user=user_, orm_spawner=orm_spawner, name=server, object_name=f"{user}--{server}")
        for name, value in {"gpus": 1, **traits}.items():
            setattr(spawner, name, value)
        return spawner

    async def start(self, user: str, server: str = "", **traits: Any) -> Any:
        spawner = self.spawner(user, server, **traits)
        await spawner.run_pre_spawn_hook()
        await spawner.start()
        return spawner


async def test_the_engine_is_asked_for_the_assigned_gpus() -> None:
    site = Site()
    await site.start("alice")
    site.engine.info = {"CDISpecDirs": ["/etc/cdi"]}
    second = await site.start("bob", extra_host_config={"pids_limit": 9})
    assert site.engine.containers == {"alice--": ["0"], "bob--": ["nvidia.com/gpu=1"]}
    assert second.extra_host_config["pids_limit"] == 9
    with pytest.raises(SpawnException, match="alice holds 1 and bob holds 1") as caught:
        await site.start("carol")
    assert caught.value.status_code == 409


async def test_a_server_without_gpus_releases_those_of_its_last_start() -> None:
    site = Site()
    spawner = await site.start("alice")
    await spawner.run_post_stop_hook()
    spawner.gpus = 0
    await spawner.run_pre_spawn_hook()
    await spawner.start()
    assert site.engine.containers == {"alice--": []}
    assert site.pool.free() == 2


async def test_an_engine_without_gpus_is_an_error_before_anything_starts() -> None:
    site = Site()
    site.engine.info = {"Runtimes": {"runc": {}}}
    with pytest.raises(SpawnException, match="cannot give GPUs to containers. Install"):
        await site.start("alice")
    assert site.engine.containers == {}
    assert site.pool.free() == 2


async def test_a_request_that_the_engine_refuses_is_reported_and_frees_the_gpu() -> None:
    site = Site()
    site.engine.start_error = docker.errors.APIError("500", explanation='could not select device driver "nvidia"')
    spawner = site.spawner("alice")
    await spawner.run_pre_spawn_hook()
    with pytest.raises(SpawnException, match="could not give this server GPU 0"):
        await spawner.start()
    await spawner.run_post_stop_hook()
    assert site.engine.containers == {}
    assert site.pool.free() == 2


async def test_a_gpu_is_free_only_after_its_container_is_removed() -> None:
    site = Site("0:big")
    spawner = await site.start("alice")
    conflict = docker.errors.APIError("409 removal in progress")
    site.engine.removals_that_fail = [conflict, requests.ConnectionError("no engine")]
    stopping = asyncio.create_task(spawner.run_post_stop_hook())
    await until(lambda: not site.engine.removals_that_fail)
    assert site.pool.free() == 0
    assert spawner.get_state()["gpu_ids"] == ["0"]
    await stopping
    assert site.engine.containers == {}
    assert site.pool.free() == 1
    assert "gpu_ids" not in spawner.get_state()


async def test_a_container_that_cannot_be_removed_keeps_its_gpu_and_refusals_name_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site("0:big")
    spawner = await site.start("alice")
    site.pool.releases.timeout = 0.0
    busy = docker.errors.APIError("500", explanation="device or resource busy")
    site.engine.removals_that_fail = [busy] * 8
    await spawner.run_post_stop_hook()
    assert (site.pool.free(), site.pool.held(("alice", ""))) == (0, ("0",))
    assert "GPUs stay in use. alice--: device or resource busy. Remove it" in caplog.text
    assert spawner.get_state()["gpu_ids"] == ["0"]

    # Alice's error names her container, and the error for bob names alice. Both starts retry the removal.
    with pytest.raises(SpawnException, match="last container, alice--: device or resource busy. .* must remove it"):
        await spawner.run_pre_spawn_hook()
    with pytest.raises(SpawnException, match="alice holds 1. The engine does not remove the last container of alice"):
        await site.start("bob")
    assert len(site.engine.removals_that_fail) < 6

    site.engine.removals_that_fail = []
    site.pool.releases.timeout = SOON
    await site.start("bob")
    assert site.engine.containers == {"bob--": ["0"]}


async def test_a_server_that_waits_for_a_gpu_does_not_count_as_starting() -> None:
    site = Site("0:big")
    await site.start("alice")
    queue = [asyncio.create_task(site.start(f"user{number}", wait_for_gpus=True)) for number in range(3)]
    await until(lambda: len(site.pool.waiting()) == 3)
    site.pending = 4
    await site.start("bob", gpus=0, concurrent_starts=1)
    site.pending = 5
    with pytest.raises(SpawnException, match="1 servers are starting. Try again") as caught:
        await site.start("carol", gpus=0, concurrent_starts=1)
    assert caught.value.status_code == 429
    for task in queue:
        task.cancel()
    await asyncio.wait(queue)


async def test_a_new_hub_knows_the_gpus_of_running_servers() -> None:
    old = Site()
    state = (await old.start("alice")).orm_spawner.state
    new = Site()
    new.pool.complete = False
    new.engine.containers = dict(old.engine.containers)
    again = new.spawner("alice")
    again.load_state(state)
    assert new.pool.holders() == {"alice": 1}
    new.pool.complete = True
    await new.start("bob")
    assert new.engine.containers == {"alice--": ["0"], "bob--": ["1"]}
    await again.run_post_stop_hook()
    assert new.engine.containers == {"bob--": ["1"]}
    assert new.pool.free() == 1


async def test_gpus_freed_after_the_hub_released_the_server_stay_free() -> None:
    site = Site("0:big")
    spawner = await site.start("alice")
    # If the engine takes longer than `run_post_stop_hook` waits, the hub stores this state in its database.
    kept = spawner.get_state()
    await spawner.end_container()
    assert kept["gpu_ids"] == ["0"]
    assert site.pool.free() == 1
    opened = site.spawner("alice")
    opened.load_state(kept)
    assert site.pool.free() == 1
    assert "gpu_ids" not in opened.get_state()


class NewHub(Site):
    """A restarted hub. The previous hub was killed while it was stopping alice's server, whose container has GPU 0."""

    def __init__(self) -> None:
        super().__init__("0:big")
        self.pool.complete = False
        self.engine.containers = {"alice--": ["0"]}
        self.row = SimpleNamespace(name="", user=SimpleNamespace(name="alice"), state={"gpu_ids": ["0"]})

    def starter(self, user: str, **traits: Any) -> Any:
        spawner = self.spawner(user, **traits)
        spawner.user.db.query = lambda _: SimpleNamespace(filter=lambda _: [self.row])
        spawner.user.settings["users"] = self
        return spawner

    def count_active_users(self) -> dict[str, int]:
        return {"spawn_pending": 1}

    def __getitem__(self, key: Any) -> Any:
        """Return alice if ``key`` is her database row, or else her spawner ``key`` with its saved state."""
        if key is self.row.user:
            return SimpleNamespace(spawners=self)
        spawner = self.spawner("alice", key)
        spawner.load_state(self.row.state)
        return spawner


@pytest.mark.parametrize("wait", [True, False])
async def test_a_new_hub_frees_gpus_of_a_server_that_was_being_stopped(wait: bool) -> None:
    hub = NewHub()
    await hub.starter("bob", wait_for_gpus=wait).run_pre_spawn_hook()
    assert hub.engine.containers == {}
    assert hub.pool.holders() == {"bob": 1}


async def test_a_concurrent_start_also_waits_for_removals_and_its_refusal_names_the_holder() -> None:
    hub = NewHub()
    hub.engine.removals_that_fail = [docker.errors.APIError("409 removal in progress")] * 2
    first = asyncio.create_task(hub.starter("bob").run_pre_spawn_hook())
    await until(hub.pool.releases.in_progress)
    with pytest.raises(SpawnException, match="bob holds 1"):
        await hub.starter("carol").run_pre_spawn_hook()
    await first


async def test_a_hung_removal_delays_a_refusal_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spawner_config.gpus.spawner.RETRY_SECONDS", 0.2)
    hub = NewHub()
    hub.engine.removals_that_fail = [docker.errors.APIError("409 removal in progress")] * 99
    with pytest.raises(SpawnException, match="alice holds 1"):
        await asyncio.wait_for(hub.starter("bob").run_pre_spawn_hook(), SOON)
    for task in hub.pool.releases.in_progress():
        task.cancel()
        await asyncio.wait([task])


async def test_a_refused_start_does_not_ask_the_engine_for_a_container() -> None:
    site = Site("0:big")
    await site.start("alice")
    refused = site.spawner("bob")
    refused.clear_state()
    with pytest.raises(SpawnException):
        await refused.run_pre_spawn_hook()
    assert await refused.poll() == 0


async def test_progress_shows_the_place_in_the_queue() -> None:
    site = Site("0:big")
    first = await site.start("alice")
    second = site.spawner("bob", wait_for_gpus=True)
    events = second.progress()
    assert "queue" not in await anext(events)
    starting = asyncio.create_task(second.run_pre_spawn_hook())
    event = await asyncio.wait_for(anext(events), SOON)
    assert (event["queue"], "place 1 of 1" in event["message"]) == (1, True)
    await first.run_post_stop_hook()
    await starting
    assert (await asyncio.wait_for(anext(events), SOON))["queue"] == 0
    await events.aclose()
