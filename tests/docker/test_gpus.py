"""Tests how a hub assigns stand-in GPUs to containers on a real engine.

The servers are so small that fifty of them can be started at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from farandole.driver.workers.client import HubClient
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.worker import WorkerOptions

from hub.process import wait_until
from tests.docker.gpu_hub import GpuHub, gpu_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docker.engines.second import SecondEngine

SOON = 180.0


@pytest.fixture(scope="module")
def engine(gpu_engine: SecondEngine) -> str:
    return gpu_engine.url


@pytest.fixture(scope="module")
def shared_hub(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHub]:
    with gpu_hub(tmp_path_factory.mktemp("gpu-hub"), engine) as running:
        yield running


@pytest.fixture
def hub(shared_hub: GpuHub) -> Iterator[GpuHub]:
    """Yield the shared hub, and stop all its servers afterwards."""
    yield shared_hub
    shared_hub.stop_all()


def test_two_gpus_and_three_users(hub: GpuHub) -> None:
    assert hub.spawn("alice")["ready"]
    assert hub.spawn("bob")["ready"]
    assert hub.devices("alice") == ["nvidia0"]
    assert hub.devices("bob") == ["nvidia1"]
    refused = hub.spawn("carol")
    assert refused["failed"]
    assert "Of 2 GPUs of class stand-in alice holds 1 and bob holds 1" in refused["message"]
    assert hub.spawn("dan", profile="cpu")["ready"]
    assert hub.devices("dan") == []
    assert "NVIDIA_VISIBLE_DEVICES=void" in hub.container("dan").attrs["Config"]["Env"]

    # Users see their place in the queue. The first user is served when a server stops, the second when one crashes.
    hub.ask("carol", wait=True)
    carol = hub.events("carol")
    assert any("place 1 of 1" in event["message"] for event in carol if event.get("queue"))
    hub.ask("erin", wait=True)
    assert any("place 2 of 2" in event["message"] for event in hub.events("erin") if event.get("queue"))
    hub.stop("alice")
    assert list(carol)[-1]["ready"]
    assert hub.devices("carol") == ["nvidia0"]
    hub.container("bob").kill()
    assert list(hub.events("erin"))[-1]["ready"]
    assert hub.devices("erin") == ["nvidia1"]
    assert hub.holders() == {"carol": 1, "erin": 1}

    # A user can start a server immediately after stopping one, and can leave the queue.
    hub.stop("carol")
    assert hub.spawn("carol")["ready"]
    hub.ask("bob", wait=True)
    hub.stop("bob")
    assert hub.request("GET", "farandole/gpus").json()["stand-in"]["waiting"] == 0


def test_a_restarted_hub_knows_the_holders_of_gpus(hub: GpuHub) -> None:
    assert hub.spawn("alice")["ready"]
    assert hub.spawn("bob")["ready"]
    hub.kill()
    hub.start()
    wait_until(lambda: hub.holders() == {"alice": 1, "bob": 1}, SOON)
    assert "bob holds 1" in hub.spawn("carol")["message"]
    hub.stop("alice")
    assert hub.spawn("carol")["ready"]
    assert hub.devices("carol") == ["nvidia0"]

    # A server crashes while the hub is down.
    hub.kill()
    hub.container("bob").kill()
    hub.start()
    assert hub.spawn("dan", wait=True)["ready"]
    assert hub.devices("dan") == ["nvidia1"]


def test_fifty_starts_at_once_never_share_a_gpu(hub: GpuHub) -> None:
    served: list[str] = []
    one_at_a_time = threading.Lock()

    def serve(number: int) -> None:
        user = f"user{number}"
        assert hub.spawn(user, wait=True).get("ready"), user
        with one_at_a_time:
            holders = Counter(_devices_of(container) for container in hub.containers())
            assert max(holders.values()) == 1, holders
            served.append(user)
        hub.stop(user)

    with ThreadPoolExecutor(50) as threads:
        for future in [threads.submit(serve, number) for number in range(50)]:
            future.result()
    assert len(set(served)) == 50
    assert hub.holders() == {}
    assert hub.containers(every=True) == []


def test_a_long_queue_does_not_delay_other_starts(engine: str, tmp_path: Path) -> None:
    with gpu_hub(tmp_path, engine) as hub:
        assert hub.spawn("alice")["ready"]
        assert hub.spawn("bob")["ready"]
        # This is more than the 100 servers that JupyterHub starts at the same time by default.
        for number in range(101):
            hub.ask(f"user{number}", wait=True)
        wait_until(lambda: hub.request("GET", "farandole/gpus").json()["stand-in"]["waiting"] == 101, SOON)
        assert hub.spawn("dan", profile="cpu")["ready"]
        hub.stop("alice")
        wait_until(lambda: hub.holders() == {"bob": 1, "user0": 1}, SOON)


async def test_two_clusters_that_wait_get_their_gpus_one_after_the_other(hub: GpuHub) -> None:
    messages: dict[str, list[str]] = {"alice": [], "bob": []}

    async def lead(user: str) -> None:
        async with aiohttp.ClientSession() as session:
            token = await asyncio.to_thread(hub.token_for, user)
            client = HubClient(url=hub.api_url.removesuffix("hub/api"), token=token, session=session)
            workers = HubWorkers(client)
            options = WorkerOptions(cluster="main", profile="gpu", wait=True, workers=2, together=2)
            await workers.start(["main-w0", "main-w1"], options, messages[user].append, SOON)
            assert (await workers.gpus())["stand-in"]["held"] == {user: 2}
            await workers.stop(["main-w0", "main-w1"])

    async with asyncio.timeout(SOON):
        await asyncio.gather(lead("alice"), lead("bob"))
    assert any("Waiting for 1 GPU of class stand-in, place" in line for lines in messages.values() for line in lines)
    assert hub.holders() == {}


def _devices_of(container: Any) -> str:
    requests = container.attrs["HostConfig"]["DeviceRequests"]
    return ",".join(sorted(device for request in requests for device in request["DeviceIDs"]))


def test_the_classic_format_of_a_request_works(engine: str, tmp_path: Path) -> None:
    with gpu_hub(tmp_path, engine, form="nvidia") as hub:
        assert hub.spawn("alice")["ready"]
        assert hub.devices("alice") == ["nvidia0"]
        assert _devices_of(hub.container("alice")) == "0"


def test_a_gpu_unknown_to_the_engine_is_reported_and_freed(engine: str, tmp_path: Path) -> None:
    with gpu_hub(tmp_path, engine, gpus="77:stand-in") as hub:
        failed = hub.spawn("alice")
        assert "The engine could not give this server GPU 77" in failed["message"], failed
        wait_until(lambda: hub.holders() == {}, SOON)
        assert hub.containers(every=True) == []


def test_an_engine_without_gpus_is_a_clear_error_before_anything_starts(tmp_path: Path) -> None:
    with gpu_hub(tmp_path, os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")) as hub:
        failed = hub.spawn("alice")
        assert "The engine on this host cannot give GPUs to containers" in failed["message"], failed
        assert hub.containers(every=True) == []
