"""Tests for how pods start and stop. Calls to the Kubernetes API and events from its watches are faked."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientError
from jupyterhub.spawner import SpawnException
from kubernetes_asyncio.client.rest import ApiException
from kubespawner import KubeSpawner
from kubespawner import spawner as kubespawner

from spawner_config.kubernetes import pods
from spawner_config.kubernetes.pods import FarandoleKubeSpawner
from spawner_config.kubernetes.policies import UserPolicies, user_policy

KEY = "farandole/farandole-ada"
NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


class FakeApi:
    """A fake API that stores pods, claims and policies. If ``refusal`` is set, creating a pod raises it."""

    def __init__(self) -> None:
        self.pods: list[str] = []
        self.deleted: list[str] = []
        self.policies: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.refusal: ApiException | None = None
        self.slow = 0.0

    async def create_namespaced_pod(self, _namespace: str, pod: Any) -> None:
        await asyncio.sleep(self.slow)
        if self.refusal:
            raise self.refusal
        self.pods.append(pod)

    async def delete_namespaced_pod(self, name: str, **_: Any) -> None:
        self.deleted.append(name)

    async def create_namespaced_network_policy(self, _namespace: str, policy: dict[str, Any]) -> None:
        if policy["metadata"]["name"] in self.policies:
            raise ApiException(status=409)
        self.policies[policy["metadata"]["name"]] = policy

    async def read_namespaced_network_policy(self, name: str, _namespace: str) -> Any:
        return annotated(**self.policies[name]["metadata"].get("annotations", {}))

    async def read_namespaced_persistent_volume_claim(self, name: str, _namespace: str) -> Any:
        if name not in self.claims:
            raise ApiException(status=404)
        return self.claims[name]

    async def patch_namespaced_network_policy(self, name: str, _namespace: str, policy: dict[str, Any]) -> None:
        self.policies[name] = policy

    async def delete_namespaced_network_policy(self, name: str, _namespace: str) -> None:
        if name not in self.policies:
            raise ApiException(status=404)
        del self.policies[name]


def annotated(**annotations: str) -> Any:
    """Return an object with these annotations, in the form that the Kubernetes client returns."""
    return SimpleNamespace(metadata=SimpleNamespace(annotations=annotations or None))


def pod(phase: str = "Pending", *, uid: str = "2", ip: str | None = None, **status: Any) -> dict[str, Any]:
    container = {"name": "notebook", "image": "i", "ready": phase == "Running", "state": status.pop("state", {})}
    return {
        "metadata": {"name": "farandole-ada", "namespace": "farandole", "uid": uid},
        "spec": {"containers": [{"ports": [{"name": "notebook-port", "containerPort": status.pop("port", 8888)}]}]},
        "status": {"phase": phase, "podIP": ip, "containerStatuses": [container], **status},
    }


def unschedulable(message: str = NO_GPU) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}])


def gated() -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}])


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setattr(kubespawner, "load_config", lambda **_: None)
    monkeypatch.setattr(kubespawner, "shared_client", lambda *_: fake)
    monkeypatch.setattr(pods, "shared_client", lambda *_: fake)
    monkeypatch.setattr(pods, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(pods, "TELL_SECONDS", 0.01)
    return fake


@pytest.fixture
def spawner(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A spawner whose informers the test fills. Its attribute `seen` holds the pods, and `happened` the events."""
    seen: dict[str, Any] = {}
    watch = SimpleNamespace(pods=seen, resources=seen, events=[], watch_task=None, _stopping=False)
    monkeypatch.setattr(KubeSpawner, "_start_watching_pods", nothing)
    monkeypatch.setattr(KubeSpawner, "_start_watching_events", nothing)
    monkeypatch.setattr(KubeSpawner, "pod_reflector", watch)
    monkeypatch.setattr(KubeSpawner, "event_reflector", watch)
    monkeypatch.setattr(KubeSpawner, "get_env", lambda _: {})
    row = SimpleNamespace(name="", server=None, state=None)
    owner = SimpleNamespace(name="ada", id=1, url="/user/ada/", spawners={}, groups=[])
    made = FarandoleKubeSpawner(
        user=owner,
        orm_spawner=row,
        namespace="farandole",
        hub_name="farandole",
        pod_name_template="farandole-{user_server}",
    )
    made.start_timeout = 30
    made.place_seconds = 1
    made.seen, made.happened = seen, watch.events
    return made


class Other:
    """Another server that is starting and therefore counts towards the limit on concurrent starts."""

    in_queue = False


async def until_made(api: FakeApi) -> None:
    async with asyncio.timeout(20):
        while not api.pods:
            await asyncio.sleep(0.01)


async def nothing(_self: Any, **_options: Any) -> None:
    pass


async def test_a_start_ends_when_the_server_listens(spawner: Any, api: FakeApi) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        spawner.seen[KEY] = pod("Running", ip="127.0.0.1", port=listener.getsockname()[1])
        url = await asyncio.wait_for(spawner.start(), 20)
        assert url == f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert len(api.pods) == 1
    assert api.deleted == []
    policy = api.policies["farandole-user-ada"]["spec"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": spawner.user_labels}}]}]
    assert policy["egress"] == [{"to": [{"podSelector": {"matchLabels": spawner.user_labels}}]}]


async def test_an_unschedulable_pod_is_deleted_with_the_schedulers_message(spawner: Any, api: FakeApi) -> None:
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = unschedulable()
    with pytest.raises(SpawnException, match=r"within 1 s: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu\."):
        await asyncio.wait_for(start, 20)
    assert api.deleted == ["farandole-ada"]


async def test_a_start_with_the_option_to_wait_is_not_given_up(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "WAIT_SECONDS", 2.0)
    spawner.wait_for_gpus = True
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = unschedulable()
    _, waiting = await asyncio.wait([start], timeout=1.5)
    assert waiting
    with pytest.raises(SpawnException, match="within 2 s: 0/1 nodes"):
        await asyncio.wait_for(start, 20)


async def test_a_new_claim_may_be_missing_for_a_while(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "CLAIM_SECONDS", 0.5)
    start = spawner.start()
    await until_made(api)
    missing = unschedulable('persistentvolumeclaim "farandole-home-ada" not found')
    spawner.seen[KEY] = missing
    await asyncio.wait([start], timeout=0.2)
    spawner.seen[KEY] = pod()
    _, waiting = await asyncio.wait([start], timeout=0.7)
    assert waiting
    spawner.seen[KEY] = missing
    with pytest.raises(SpawnException, match="no volume claim 'farandole-home-ada'"):
        await asyncio.wait_for(start, 20)


async def test_a_start_waits_for_its_turn_and_not_for_queued_pods(spawner: Any, api: FakeApi) -> None:
    other = Other()
    spawner._starting.add(other)
    spawner.concurrent_starts = 1
    start = spawner.start()
    _, waiting = await asyncio.wait([start], timeout=0.3)
    assert waiting
    assert api.pods == []
    other.in_queue = True
    await until_made(api)
    start.cancel()
    await asyncio.wait([start])
    assert spawner._starting == {other}
    spawner._starting.clear()


async def test_a_queued_pod_may_wait(spawner: Any, api: FakeApi) -> None:
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = gated()
    _, waiting = await asyncio.wait([start], timeout=1.5)
    assert waiting
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert api.deleted == ["farandole-ada"]


async def test_a_missing_image_ends_the_start_immediately(spawner: Any, api: FakeApi) -> None:
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = pod(state={"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}})
    with pytest.raises(SpawnException, match="image i is not available"):
        await asyncio.wait_for(start, 20)
    assert api.deleted == ["farandole-ada"]


async def test_a_start_in_progress_sorts_no_events(spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(KubeSpawner, "events", property(lambda _: looks.append(True) or []))
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = pod()
    before = len(looks)
    await asyncio.wait([start], timeout=0.3)
    assert len(looks) == before
    start.cancel()
    await asyncio.wait([start])


async def test_the_pod_of_an_earlier_start_is_ignored(spawner: Any) -> None:
    spawner.seen[KEY] = pod("Failed", uid="1", state={"terminated": {"reason": "Error", "exitCode": 1}})
    start = spawner.start()
    _, waiting = await asyncio.wait([start], timeout=0.3)
    assert waiting
    start.cancel()
    await asyncio.wait([start])


async def test_a_deletion_is_retried_until_it_is_accepted(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | None] = [TimeoutError(), TimeoutError(), None]

    async def delete(name: str, **_: Any) -> None:
        if answer := answers.pop(0):
            raise answer
        api.deleted.append(name)

    monkeypatch.setattr(api, "delete_namespaced_pod", delete)
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = pod(state={"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}})
    with pytest.raises(SpawnException, match="image i is not available"):
        await asyncio.wait_for(start, 20)
    assert api.deleted == ["farandole-ada"]


@pytest.mark.parametrize("failure", [TimeoutError(), ClientError("no way to the API server"), ApiException(status=500)])
async def test_a_failed_deletion_hides_no_reason(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def delete(**_: Any) -> None:
        raise failure

    polls: list[bool] = []
    monkeypatch.setattr(api, "delete_namespaced_pod", delete)
    monkeypatch.setattr(spawner, "start_polling", lambda: polls.append(True))
    spawner.k8s_api_request_retry_timeout = 1
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = pod(state={"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}})
    with pytest.raises(SpawnException, match="image i is not available"):
        await asyncio.wait_for(start, 20)
    assert polls == [True]


async def test_a_pod_deleted_during_its_start_ends_the_start(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "GONE_SECONDS", 0.3)
    start = spawner.start()
    await until_made(api)
    spawner.seen[KEY] = pod()
    await asyncio.sleep(0.1)
    del spawner.seen[KEY]
    with pytest.raises(SpawnException, match="was removed while it started"):
        await asyncio.wait_for(start, 5)


async def test_a_pod_recreated_during_its_start_is_waited_for(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "GONE_SECONDS", 0.3)
    start = spawner.start()
    await until_made(api)
    for uid in "23":
        spawner.seen[KEY] = pod(uid=uid)
        await asyncio.sleep(0.2)
        del spawner.seen[KEY]
        await asyncio.sleep(0.1)
    spawner.seen[KEY] = pod(uid="4")
    _, waiting = await asyncio.wait([start], timeout=0.5)
    assert waiting
    start.cancel()
    await asyncio.wait([start])


async def test_refusals_of_the_api_server_are_reported(spawner: Any, api: FakeApi) -> None:
    api.refusal = ApiException(status=403, reason="Forbidden")
    api.refusal.body = '{"message": "pods \\"farandole-ada\\" is forbidden: exceeded quota: all-servers"}'
    with pytest.raises(SpawnException, match=r"quota.*is used up: pods \"farandole-ada\" is forbidden"):
        await asyncio.wait_for(spawner.start(), 20)


async def test_a_pod_created_while_its_start_is_given_up_is_deleted(spawner: Any, api: FakeApi) -> None:
    api.slow = 0.3
    start = spawner.start()
    await asyncio.sleep(0.1)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert len(api.pods) == 1
    assert api.deleted == ["farandole-ada"]


async def test_a_pod_on_a_dead_node_counts_as_gone(spawner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[bool] = []

    async def stop(now: bool = False) -> None:
        stops.append(now)

    monkeypatch.setattr(spawner, "stop", stop)
    dead = pod("Running", ip="10.0.0.1", state={"running": {}})
    spawner.seen[KEY] = dead
    assert await spawner.poll() is None
    gone = datetime.now(UTC) - timedelta(minutes=1)
    dead["metadata"]["deletionTimestamp"] = gone.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert await spawner.poll() == 1
    assert stops == [True]


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(pod("Succeeded", state={"terminated": {"exitCode": 0}}), id="nothing-runs-any-more"),
        pytest.param(pod("Running", ip="10.0.0.1", state={"running": {}}), id="dead-node"),
    ],
)
async def test_a_pod_that_its_node_does_not_remove_is_force_deleted(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch, ending: dict[str, Any]
) -> None:
    graces: list[int] = []

    async def delete(name: str, grace_period_seconds: int, **_: Any) -> None:
        graces.append(grace_period_seconds)
        if grace_period_seconds == 0:
            spawner.seen.clear()
        else:
            ending["metadata"]["deletionTimestamp"] = "2026-11-22T20:00:20Z"
            spawner.seen[KEY] = ending

    monkeypatch.setattr(api, "delete_namespaced_pod", delete)
    spawner.delete_grace_period = 5
    spawner.seen[KEY] = pod("Running", ip="10.0.0.1", state={"running": {}})
    await asyncio.wait_for(spawner.stop(), 20)
    assert graces == [5, 0]


async def test_progress_shows_events_once_and_the_place_in_a_queue(spawner: Any) -> None:
    event = {"metadata": {"uid": "e1"}, "involvedObject": {"name": "farandole-ada"}, "message": "Created container"}
    spawner.happened.append(event)
    spawner.seen[KEY] = gated()
    progress = spawner.progress()
    shown = [await anext(progress), await anext(progress)]
    spawner.seen[KEY] = pod()
    shown.append(await asyncio.wait_for(anext(progress), 5))
    await progress.aclose()
    assert [each["message"] for each in shown] == [
        "Created container",
        "waiting in the queue until there is room for all",
        "admitted by the queue, starting",
    ]
    assert [each.get("queue") for each in shown] == [None, 1, 0]


async def test_concurrent_stops_of_a_server_wait_for_the_same_deletion(spawner: Any) -> None:
    spawner._stop_pending = True
    first, second = spawner._stop_future, spawner._stop_future
    assert first is second
    assert not first.done()
    spawner._stop_pending = False
    await asyncio.wait_for(first, 5)
    own: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    spawner._stop_future = own
    assert spawner._stop_future is own


async def test_a_users_policy_is_removed_with_the_user(spawner: Any, api: FakeApi) -> None:
    await spawner._ensure_policy()
    await spawner._ensure_policy()
    assert set(api.policies) == {"farandole-user-ada"}
    await spawner.delete_forever()
    assert api.policies == {}
    await spawner.delete_forever()


async def test_a_policy_of_another_user_is_refused_and_stays(spawner: Any, api: FakeApi) -> None:
    """If the policy were reused, the pods of both users could reach each other."""
    theirs = user_policy("farandole-user-ada", spawner.user_labels, "another")
    api.policies["farandole-user-ada"] = theirs
    with pytest.raises(SpawnException, match="network policy farandole-user-ada belongs to the user 'another'"):
        await asyncio.wait_for(spawner.start(), 20)
    assert api.policies["farandole-user-ada"] is theirs
    assert (api.pods, api.deleted) == ([], [])


async def test_a_policy_of_an_earlier_version_gets_the_users_name(spawner: Any, api: FakeApi) -> None:
    api.policies["farandole-user-ada"] = {"metadata": {"name": "farandole-user-ada"}}
    await spawner._ensure_policy()
    assert api.policies["farandole-user-ada"]["metadata"]["annotations"] == {"hub.jupyter.org/username": "ada"}


async def test_a_claim_of_another_user_is_refused_with_the_remedy(spawner: Any, api: FakeApi) -> None:
    """The claim's owner may have been deleted, because homes are kept when their users are deleted."""
    spawner.pvc_name = "farandole-home-ada"
    api.claims["farandole-home-ada"] = annotated(**{"hub.jupyter.org/username": "another"})
    with pytest.raises(SpawnException, match="claim farandole-home-ada belongs to the user 'another'.*remove the"):
        await asyncio.wait_for(spawner.start(), 20)
    assert (api.pods, api.deleted) == ([], [])


@pytest.mark.parametrize("annotations", [{"hub.jupyter.org/username": "ada"}, {}])
async def test_the_own_claim_and_one_without_a_name_are_accepted(
    spawner: Any, api: FakeApi, annotations: dict[str, str]
) -> None:
    spawner.pvc_name = "farandole-home-ada"
    api.claims["farandole-home-ada"] = annotated(**annotations)
    await spawner._check_claim()


async def test_a_refused_policy_fails_the_start(api: FakeApi) -> None:
    async def refuse(*_: Any) -> None:
        raise ApiException(status=403)

    api.create_namespaced_network_policy = refuse  # type: ignore[method-assign]
    with pytest.raises(ApiException):
        await UserPolicies(api, "farandole").ensure(user_policy("p", {"a": "b"}, "ada"), 5)


async def test_a_running_server_that_does_not_listen_is_reported(
    spawner: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "LISTEN_SECONDS", 0.2)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        spawner.seen[KEY] = pod("Running", ip="127.0.0.1", port=bound.getsockname()[1])
        with pytest.raises(SpawnException, match="did not listen"):
            await asyncio.wait_for(spawner.start(), 20)
    assert api.deleted == ["farandole-ada"]
