from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
import requests
from docker.errors import DockerException, ImageNotFound
from farandole import __version__
from jupyterhub.spawner import SpawnException

from spawner_config.containers.images import ImagePulls, ImageSpawner, missing_image, wrong_version
from spawner_config.labels import MODEL_LABEL, SERVING_LABEL, VERSION_LABEL

IMAGE = "farandole-notebook:0.2.0"
SECONDS = 60.0


def described(labels):
    return {"Config": {"Labels": labels}}


def test_an_image_of_the_hubs_version_is_accepted():
    assert wrong_version(IMAGE, described({VERSION_LABEL: "0.2.0"}), "0.2.0") is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (described({VERSION_LABEL: "0.1.0"}), "has version 0.1.0"),
        (described({"other": "0.2.0"}), "has no version"),
        (described(None), "has no version"),
        ({"Config": None}, "has no version"),
    ],
)
def test_another_version_is_reported_with_both_versions_and_the_remedy(found, words):
    problem = wrong_version(IMAGE, found, "0.2.0")
    assert problem is not None
    for part in (IMAGE, words, "the hub has version 0.2.0", "FARANDOLE_VERSION in .env"):
        assert part in problem


def test_an_image_of_a_model_has_the_version_of_its_serving_image():
    labels = {MODEL_LABEL: "iris:3", SERVING_LABEL: "0.2.0", VERSION_LABEL: "3"}
    assert wrong_version("lab/iris:3", described(labels), "0.2.0") is None
    problem = wrong_version("lab/iris:3", described(labels), "0.3.0")
    assert "has version 0.2.0 of Farandole and the hub has version 0.3.0" in problem
    assert "Publish iris:3 again, with a serving image of version 0.3.0" in problem


def test_a_missing_image_is_reported_with_the_engines_reason():
    message = missing_image(IMAGE, "no route\n")
    assert f"{IMAGE} is not on this host, and the engine cannot pull it: no route. " in message


async def test_a_missing_image_of_a_model_may_be_misspelled_or_need_a_login():
    registry = Registry(error=ImageNotFound("manifest unknown"))
    registry.gate.set()
    spawner = spawner_of(registry)
    spawner.model_image = "127.0.0.1:5000/lab/iris:9"
    with pytest.raises(SpawnException, match=r"manifest unknown\. Check its name and its tag; .*`docker pull`"):
        await spawner.pull_image(spawner.model_image)


class Registry:
    """A fake engine whose pulls block until ``gate`` is set. All its clients share the same images."""

    def __init__(self, error=None):
        self.images = set()
        self.pulls = []
        self.closed = 0
        self.gate = threading.Event()
        self._error = error

    def connect(self):
        return SimpleNamespace(pull=self._pull, inspect_image=self._inspect, close=self._close)

    def _pull(self, repository, tag):
        self.pulls.append(f"{repository}:{tag}")
        assert self.gate.wait(SECONDS)
        if self._error:
            raise self._error
        self.images.add(f"{repository}:{tag}")

    def _inspect(self, image):
        if image not in self.images:
            raise ImageNotFound("no such image")
        return described({VERSION_LABEL: __version__})

    def _close(self):
        self.closed += 1


@pytest.fixture
async def registry():
    made = Registry()
    yield made
    # Closing the event loop waits for its threads, so let the blocked pulls finish first.
    made.gate.set()


def spawner_of(registry):
    pulls = ImagePulls(registry.connect)
    made = type("Spawner", (ImageSpawner,), {"pulls": pulls, "_client": registry.connect(), "_executor": None})()
    made.pull_policy = "ifnotpresent"
    return made


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_while_an_image_is_pulled_the_engine_answers_other_calls(registry):
    spawner = spawner_of(registry)
    registry.images.add("other:1")
    start = asyncio.create_task(spawner.pull_image(IMAGE))
    await until(lambda: registry.pulls)
    async with asyncio.timeout(SECONDS / 2):
        assert await spawner.docker("inspect_image", "other:1")
    assert not start.done()
    registry.gate.set()
    await start
    assert registry.pulls == [IMAGE]
    assert registry.closed == 1


async def test_starts_that_wait_for_one_image_share_a_pull_that_survives_their_cancellation(registry):
    pulls = ImagePulls(registry.connect)
    waiters = [asyncio.create_task(pulls.pull("image", "1")) for _ in range(20)]
    await until(lambda: registry.pulls)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    again = asyncio.create_task(pulls.pull("image", "1"))
    await asyncio.sleep(0)
    registry.gate.set()
    await again
    assert registry.pulls == ["image:1"]
    await pulls.pull("image", "1")
    assert len(registry.pulls) == 2


@pytest.mark.parametrize("error", [DockerException("no engine"), requests.ConnectionError("no engine")])
async def test_a_failed_pull_is_reported_and_retried(error):
    registry = Registry(error)
    registry.gate.set()
    spawner = spawner_of(registry)
    for _ in range(2):
        with pytest.raises(SpawnException, match=f"{IMAGE} is not on this host, and .* pull it: no engine"):
            await spawner.pull_image(IMAGE)
    assert len(registry.pulls) == 2


async def test_a_pull_that_never_ends_is_given_up(registry):
    pulls = ImagePulls(registry.connect, seconds=0.1)
    with pytest.raises(requests.Timeout, match="did not finish within"):
        await pulls.pull("image", "1")


@pytest.mark.parametrize("name", ["127.0.0.1:5000/lab/iris", "127.0.0.1:5000/lab/iris:3"])
async def test_an_image_with_a_digest_is_pulled_by_it(registry, name):
    digest = f"sha256:{'0' * 64}"
    registry.gate.set()
    pulls = ImagePulls(registry.connect)
    repository, _, rest = f"{name}@{digest}".rpartition(":")
    await pulls.pull(repository, rest)
    assert registry.pulls == [f"{name}:{digest}"]
