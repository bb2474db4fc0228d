"""Tests for publications in claims of Kubernetes, with a fake of its API."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientError
from farandole.datasets.versions.names import parse_version
from kubernetes_asyncio.client.rest import ApiException

from spawner_config.kubernetes.settings import KubernetesSettings
from spawner_config.publishing import pods
from spawner_config.publishing.pods import ClaimStore
from spawner_config.publishing.publications import Ended, Order, PublicationError

DIGITS = parse_version("digits@3")
OURS = {"farandole.hub": "farandole"}
SETTINGS = {
    "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1",
    "FARANDOLE_PULL_SECRETS": "registry",
    "FARANDOLE_HOME_CLASS": "fast",
    "FARANDOLE_POD_LABELS": "team=vision",
}
NAME = "farandole-publish.digits"
SIZE = 100 * 2**20
CLAIM = {**OURS, "farandole.mib": "366"}


def terminated(status: int, message: str | None) -> Any:
    found = SimpleNamespace(exit_code=status, message=message, reason="Error")
    state = SimpleNamespace(terminated=found, waiting=None)
    return SimpleNamespace(
        phase="Failed" if status else "Succeeded",
        container_statuses=[SimpleNamespace(state=state)],
        conditions=None,
        message=None,
        reason=None,
    )


class Api:
    """The API server, with claims and pods. A pod has the states in `states`, one after the other."""

    def __init__(self, *states: Any, **claims: dict[str, str]) -> None:
        self.claims = {name.replace("_", "-"): labels for name, labels in claims.items()}
        self.states = list(states)
        self.pods: dict[str, Any] = {}
        self.deleted: str | None = None
        self.made: list[Any] = []

    async def read_namespaced_persistent_volume_claim(self, name: str, namespace: str) -> Any:
        assert namespace == "lab"
        if name not in self.claims:
            raise ApiException(status=404, reason="Not Found")
        return SimpleNamespace(metadata=SimpleNamespace(labels=self.claims[name]))

    async def create_namespaced_persistent_volume_claim(self, _namespace: str, claim: Any) -> None:
        self.made.append(claim)

    async def create_namespaced_pod(self, _namespace: str, pod: Any) -> None:
        if pod["metadata"]["name"] in self.pods:
            raise ApiException(status=409, reason="Conflict")
        self.pods[pod["metadata"]["name"]] = pod
        self.made.append(pod)

    async def read_namespaced_pod(self, _name: str, _namespace: str) -> Any:
        found = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(status=found, metadata=SimpleNamespace(deletion_timestamp=self.deleted))

    async def delete_namespaced_pod(self, name: str, _namespace: str, *, grace_period_seconds: int) -> None:
        assert grace_period_seconds == 1
        if name not in self.pods:
            raise ApiException(status=404, reason="Not Found")
        del self.pods[name]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "POLL_SECONDS", 0.001)


def copy(api: Api, size: int = SIZE) -> Ended | None:
    spawner = SimpleNamespace(api=api, namespace="lab", pvc_name="farandole-home-ada")
    order = Order(user="ada", spawner=spawner, name="digits", folder="data/digits", bytes=size)
    return asyncio.run(ClaimStore(KubernetesSettings.from_environment(SETTINGS)).copy(DIGITS, order))


RUNNING = SimpleNamespace(phase="Running", container_statuses=None, conditions=None)


def test_the_pod_reads_the_home_and_writes_the_new_claim_only() -> None:
    api = Api(RUNNING, terminated(0, '{"files": 1}'))
    assert copy(api) == Ended(status=0, outcome='{"files": 1}')
    claim, pod = api.made
    assert claim["metadata"] == {"name": "digits-v3", "labels": CLAIM}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "366Mi"}},
        "storageClassName": "fast",
    }
    spec = pod["spec"]
    [container] = spec["containers"]
    assert pod["metadata"] == {"name": NAME, "labels": {"team": "vision", **OURS}}
    assert [(each["name"], each["mountPath"], each["readOnly"]) for each in container["volumeMounts"]] == [
        ("home", "/home/user", True),
        ("version", "/groups", False),
    ]
    names = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]]
    assert names == ["farandole-home-ada", "digits-v3"]
    assert container["command"][-4:] == ["/home/user/data/digits", "/groups", "--result", "/dev/termination-log"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 1000
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not api.pods


def test_the_claim_of_an_earlier_attempt_is_used_again() -> None:
    api = Api(terminated(1, '{"error": "changed"}'), digits_v3={**OURS, "farandole.mib": "356", "more": "labels"})
    api.pods[NAME] = "left by an earlier hub"
    assert copy(api) == Ended(status=1, outcome='{"error": "changed"}')
    assert [each["kind"] for each in api.made] == ["Pod"]


def test_a_claim_of_others_is_left_alone() -> None:
    api = Api(digits_v3={"app": "database", "farandole.mib": "366"})
    assert copy(api) is None
    assert not api.made


@pytest.mark.parametrize("labels", [OURS, {**OURS, "farandole.mib": "355"}])
def test_a_claim_of_an_earlier_attempt_that_is_too_small_is_left_alone(labels: dict[str, str]) -> None:
    api = Api(digits_v3=labels)
    assert copy(api) is None
    assert not api.made


def test_the_pod_of_a_user_is_never_replaced() -> None:
    """A user may have the name publish-digits."""
    api = Api(terminated(0, "{}"))
    api.pods["farandole-publish-digits"] = "the notebook server of publish-digits"
    copy(api)
    assert list(api.pods) == ["farandole-publish-digits"]


def test_the_api_server_may_be_restarted_meanwhile() -> None:
    faults = (ApiException(status=503), ApiException(status=429), ClientError("gone"), TimeoutError())
    assert copy(Api(RUNNING, *faults, RUNNING, terminated(0, "{}"))) == Ended(status=0, outcome="{}")


def test_an_api_server_that_does_not_come_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "OUTAGE_SECONDS", -1)
    with pytest.raises(PublicationError, match="Kubernetes does not answer the hub"):
        copy(Api(ClientError("gone")))
    with pytest.raises(PublicationError, match=r"Kubernetes refuses .*: 403 no"):
        copy(Api(ApiException(status=403, reason="no")))


def test_a_pod_that_others_delete_is_explained() -> None:
    with pytest.raises(PublicationError, match="was deleted, for example because its node has failed"):
        copy(Api(ApiException(status=404)))
    api = Api(RUNNING)
    api.deleted = "2026-11-30T18:00:00Z"
    with pytest.raises(PublicationError, match="was deleted, for example because its node has failed"):
        copy(api)


def test_a_pod_without_a_message_has_its_reason() -> None:
    assert copy(Api(terminated(137, None))) == Ended(status=137, outcome="Error")
    lost = SimpleNamespace(phase="Failed", container_statuses=None, message=None, reason="NodeLost")
    assert copy(Api(lost)) == Ended(status=1, outcome="NodeLost")


def test_a_pod_that_does_not_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "START_SECONDS", 0)
    unplaced = SimpleNamespace(status="False", message="0/3 nodes are available")
    waits = SimpleNamespace(phase="Pending", container_statuses=None, conditions=[unplaced])
    api = Api(waits)
    with pytest.raises(PublicationError, match="did not start in 0 s: 0/3 nodes are available"):
        copy(api)
    assert not api.pods


def test_a_refusal_of_kubernetes_is_explained() -> None:
    class Full(Api):
        async def create_namespaced_pod(self, _namespace: str, _pod: Any) -> None:
            raise ApiException(status=403, reason="exceeded quota")

    with pytest.raises(PublicationError, match="Kubernetes refuses .*: 403 exceeded quota"):
        copy(Full())
