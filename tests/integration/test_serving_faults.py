"""Tests that no request gets a wrong answer while versions are switched under load, and server and hub are killed."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING

import pytest
import requests
import torch
from farandole import Endpoint
from farandole.exceptions import FarandoleError
from farandole.models.store import ModelStore
from farandole.ranks.models.save import save_model
from jupyterhub.slugs import safe_slug

from bench.serving.load import REQUEST, Outcome, at_a_rate
from hub.process import local_session, wait_until
from tests.clients.hosts import url_of
from tests.hub import RunningHub, run_hub
from tests.integration.test_serving import Constant, headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

USER = "mia"
VERSIONS = (1, 2, 3)
MOMENTS = 50
"""How often a server or the hub is killed."""
SEED = 20
CALLERS = 3
LATEST_SECONDS = 3.0
"""A process is killed at most this long after the first switch."""
ANSWER_SECONDS = 60.0
REFUSED_PAUSE = 0.02
RIGHT, REFUSED = "right", "refused"
REFUSALS = {404, 503}
"""The statuses of clear refusals.

- The proxy answers 404 after its start, until the hub has added its routes, and 503 if the server at a route does not
  answer (`handleProxyError` in configurable-http-proxy).
- The hub answers 503 to requests for a server without a route (`OwnHostHandler`).
- The endpoint answers 503 while the hub cannot check a token (`HubLogin`).
"""
RATE = 200.0
SWITCHES = 10
ANSWERED = "farandole_endpoint_requests_total{"


@contextmanager
def stored(hub: RunningHub) -> Iterator[ModelStore]:
    """Save the versions of a model in the home of the user, and yield the store."""
    folder = hub.state / "homes" / safe_slug(USER) / "farandole" / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(folder))
        for version in VERSIONS:
            save_model(Constant(version), "constant", example=torch.ones(1, 16))
        yield ModelStore()


class Served:
    """An endpoint of the user, which its user starts again after its process was killed."""

    def __init__(self, hub: RunningHub, store: ModelStore) -> None:
        self._where = {"hub_url": hub.url, "token": hub.token_for(USER)}
        self._store = store
        self.endpoint = self._start(VERSIONS[0])
        self.caller = self.endpoint.token(days=1)

    def _start(self, version: int) -> Endpoint:
        return Endpoint.start(f"constant:{version}", store=self._store, progress=len, **self._where)

    def start_again(self, version: int) -> None:
        """Start the endpoint with a version, after the hub has noticed its end."""
        wait_until(lambda: not Endpoint.all(**self._where), ANSWER_SECONDS)
        self._start(version)

    def version(self) -> int:
        """Return the version that the endpoint serves, once it says so."""
        found = [0]

        def is_known() -> bool:
            found.append(self.endpoint.status().version)
            return found[-1] > 0

        wait_until(is_known, ANSWER_SECONDS)
        return found[-1]

    def switch(self, version: int) -> None:
        self.endpoint.switch(f"constant:{version}", store=self._store)

    def switch_until(self, ended: Callable[[], bool], served: int, versions: Iterator[int]) -> tuple[int, set[int]]:
        """Switch from the version ``served`` to others until ``ended`` returns true, or a switch fails.

        Return the version that was requested last, and the versions that the endpoint may serve now.
        """
        while True:
            version = next(versions)
            try:
                self.switch(version)
            except FarandoleError:
                # The endpoint may have switched, although its answer was lost.
                return version, {served, version}
            served = version
            if ended():
                return version, {version}


@contextmanager
def calling(url: str, token: str) -> Iterator[list[str]]:
    """Call an endpoint from several threads without a pause, and yield the growing list of outcomes."""
    outcomes: list[str] = []
    stop = threading.Event()

    def client() -> None:
        with local_session() as session:
            session.headers.update(headers(token))
            while not stop.is_set():
                outcomes.append(outcome := outcome_of(session, url))
                if outcome == REFUSED:
                    # The hub restarts on the same processors.
                    stop.wait(REFUSED_PAUSE)

    with ThreadPoolExecutor(CALLERS) as pool:
        clients = [pool.submit(client) for _ in range(CALLERS)]
        try:
            yield outcomes
        finally:
            stop.set()
    for one in clients:
        one.result()


def outcome_of(session: requests.Session, url: str) -> str:
    """Send a request. Return `RIGHT` for the value of the answer's version, `REFUSED`, or a description."""
    try:
        answer = session.post(url, json=REQUEST, allow_redirects=False, timeout=30)
    except requests.Timeout as exc:
        return repr(exc)
    except requests.RequestException:
        return REFUSED
    if answer.status_code in REFUSALS:
        return REFUSED
    with suppress(requests.JSONDecodeError):
        found = answer.json()
        if found.get("outputs", [{}])[0].get("data") == [float(found["model_version"])]:
            return RIGHT
    return f"{answer.status_code}: {answer.text}"


def kill_endpoint(hub: RunningHub) -> None:
    hub.kill_server(USER, "serve-constant")


def kill_hub(hub: RunningHub) -> None:
    hub.kill_and_restart()


def kill_later(kill: Callable[[RunningHub], None], hub: RunningHub, seconds: float) -> None:
    time.sleep(seconds)
    kill(hub)


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_each_request_is_answered_or_refused_while_server_and_hub_are_killed(tmp_path: Path) -> None:
    seeded, versions, kills = random.Random(SEED), cycle((2, 3, 1)), cycle((kill_endpoint, kill_hub))
    with run_hub(tmp_path / "state") as hub, stored(hub) as store, ThreadPoolExecutor(1) as pool:
        served, version = Served(hub, store), VERSIONS[0]
        url = url_of(hub.url, f"/user/{USER}/serve-constant/v2/models/constant/infer")
        with calling(url, served.caller) as outcomes:
            for kill in islice(kills, MOMENTS):
                killing = pool.submit(kill_later, kill, hub, seeded.uniform(0, LATEST_SECONDS))
                wanted, possible = served.switch_until(killing.done, version, versions)
                killing.result()
                if kill is kill_endpoint:
                    served.start_again(wanted)
                    possible = {wanted}
                before = len(outcomes)
                wait_until(lambda before=before: RIGHT in outcomes[before:], ANSWER_SECONDS)
                version = served.version()
                assert version in possible
        assert set(outcomes) == {RIGHT, REFUSED}
        served.endpoint.stop()


def answered(address: str, token: str) -> float:
    """Return how many requests for inference an endpoint has answered, as its metrics say."""
    with local_session() as session:
        text = session.get(f"{address}metrics", headers=headers(token), timeout=30).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(ANSWERED))


def switch_under_load(served: Served, address: str, count: int) -> list[float]:
    """Switch each time that another part of ``count`` requests has been answered.

    Return how many requests were answered during each switch.
    """
    during = []
    for number, version in enumerate(islice(cycle((2, 3, 1)), SWITCHES), 1):
        part = number * count / (SWITCHES + 1)
        wait_until(lambda part=part: answered(address, served.caller) >= part, count / RATE + ANSWER_SECONDS)
        before = answered(address, served.caller)
        served.switch(version)
        during.append(answered(address, served.caller) - before)
    return during


async def load_until(ended: Callable[[], bool], url: str, count: int, token: str) -> Outcome:
    """Send ``count`` requests at `RATE`, and more until ``ended`` returns true."""
    found = await at_a_rate(url, RATE, count, headers(token))
    while not ended():
        more = await at_a_rate(url, RATE, int(RATE), headers(token))
        found = Outcome(
            found.seconds + more.seconds,
            found.failed + more.failed,
            found.mixed + more.mixed,
            found.versions | more.versions,
        )
    return found


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(100_000, marks=[pytest.mark.release, pytest.mark.timeout(1200)])], ids=str
)
async def test_all_requests_at_a_rate_are_answered_while_versions_are_switched(hub: RunningHub, count: int) -> None:
    with stored(hub) as store:
        served = await asyncio.to_thread(Served, hub, store)
        # The requests go to the server itself, and not through the hub's proxy.
        address = hub.environment_of(USER, "serve-constant")["JUPYTERHUB_SERVICE_URL"]
        async with asyncio.TaskGroup() as group:
            switching = group.create_task(asyncio.to_thread(switch_under_load, served, address, count))
            url = f"{address}v2/models/constant/infer"
            loading = group.create_task(load_until(switching.done, url, count, served.caller))
        await asyncio.to_thread(served.endpoint.stop)
    outcome, during = loading.result(), switching.result()
    assert (outcome.failed, outcome.mixed) == ([], 0)
    assert len(outcome.seconds) >= count
    assert outcome.versions == {"1", "2", "3"}
    assert min(during) > 0, during
