"""Tests for the status of a start, which is derived from the states of pods as Kubernetes 1.20 reports them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes_asyncio.client.rest import ApiException

from spawner_config.kubernetes.pod_status import (
    cannot_be_placed,
    fatal_reason,
    has_ended,
    is_overdue,
    missing_claim,
    queued,
    refusal,
    unplaced,
)

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
BACK_OFF = 'Back-off pulling image "farandole-nothing:9"'
PULL = 'Failed to pull image "farandole-nothing:9": rpc error: code = NotFound'


def pod(phase: str = "Pending", *, condition: dict[str, str] | None = None, **state: Any) -> dict[str, Any]:
    containers = [{"name": "notebook", "image": "farandole-nothing:9", "state": state}] if state else None
    conditions = [{"type": "PodScheduled", "status": "False", **condition}] if condition else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
    return {"metadata": {"name": "farandole-ada", "uid": "1"}, "status": status}


@pytest.mark.parametrize(
    "state",
    [
        pod(),
        pod("Running", running={"startedAt": "now"}),
        pod(waiting={"reason": "ContainerCreating"}),
        pod(waiting={"reason": "ErrImagePull", "message": "try again"}),
        pod(condition={"reason": "Unschedulable", "message": NO_GPU}),
        pod(condition={"reason": "SchedulingGated"}),
    ],
)
def test_a_pod_that_may_still_start_is_not_given_up(state: dict[str, Any]) -> None:
    assert fatal_reason(state) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            pod(waiting={"reason": "ErrImageNeverPull", "message": "it is not present"}),
            "image farandole-nothing:9 is not available",
        ),
        (pod(waiting={"reason": "ImagePullBackOff", "message": BACK_OFF}), "FARANDOLE_NOTEBOOK_IMAGE"),
        (
            pod(waiting={"reason": "CreateContainerConfigError", "message": "image will run as root"}),
            "will run as root",
        ),
        (
            pod("Failed", terminated={"reason": "OOMKilled", "exitCode": 137}),
            r"ended.*OOMKilled, exit code 137.*larger",
        ),
        (
            pod("Failed") | {"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}},
            "Evicted low",
        ),
    ],
)
def test_a_pod_that_cannot_start_is_reported_with_the_reason(state: dict[str, Any], words: str) -> None:
    problem = fatal_reason(state)
    assert problem is not None
    with pytest.raises(ValueError, match=words):
        raise ValueError(problem)


def test_a_missing_claim_is_reported_by_its_name() -> None:
    found = pod(condition={"reason": "Unschedulable", "message": 'persistentvolumeclaim "imagenet" not found'})
    assert fatal_reason(found) is None
    assert "no volume claim 'imagenet'" in str(missing_claim(found))
    assert missing_claim(pod(condition={"reason": "Unschedulable", "message": "no room"})) is None


def test_a_missing_image_is_reported_with_the_message_of_the_pull() -> None:
    problem = fatal_reason(
        pod(waiting={"reason": "ImagePullBackOff", "message": BACK_OFF}), ["Pulling image", PULL, BACK_OFF]
    )
    assert problem is not None
    assert "code = NotFound" in problem
    assert "Back-off" not in problem


def test_the_schedulers_message_is_shown() -> None:
    state = pod(condition={"reason": "Unschedulable", "message": NO_GPU})
    assert unplaced(state) == NO_GPU
    assert "within 120 s: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu. Choose" in cannot_be_placed(
        NO_GPU, 120
    )
    assert unplaced(pod()) is None


@pytest.mark.parametrize(
    "words",
    [
        "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims.",
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes ...",
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
        "0/2 nodes are available: 1 node(s) had untolerated taint {a: }, 1 node(s) had volume node affinity conflict.",
        'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
    ],
)
def test_an_unavailable_volume_is_not_blamed_on_the_profile(words: str) -> None:
    message = cannot_be_placed(words, 120)
    assert f"no volume for this server within 120 s: {words.rstrip('.')}. Try" in message
    assert "FARANDOLE_HOME_CLASS" in message
    assert "smaller profile" not in message


def test_without_free_resources_the_remedy_is_a_smaller_profile() -> None:
    words = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had volume node affinity conflict."
    assert "smaller profile" in cannot_be_placed(words, 120)


def test_a_queued_pod_is_not_unschedulable() -> None:
    state = pod(condition={"reason": "SchedulingGated", "message": "Scheduling is blocked"})
    assert queued(state)
    assert unplaced(state) is None
    assert not queued(pod(condition={"reason": "Unschedulable", "message": NO_GPU}))


def test_a_pod_whose_node_died_is_overdue() -> None:
    now = datetime(2026, 11, 22, 20, 0, 30, tzinfo=UTC)
    state = pod("Running")
    assert not is_overdue(state, now, 15)
    state["metadata"]["deletionTimestamp"] = "2026-11-22T20:00:20Z"
    assert not is_overdue(state, now, 15)
    assert is_overdue(state, now, 5)


def test_a_deleted_pod_without_running_containers_has_ended() -> None:
    state = pod("Failed", terminated={"reason": "Error", "exitCode": 143})
    assert not has_ended(state)
    state["metadata"]["deletionTimestamp"] = "2026-11-22T20:00:20Z"
    assert has_ended(state)
    for other in (pod("Running", running={"startedAt": "now"}), pod()):
        other["metadata"]["deletionTimestamp"] = "2026-11-22T20:00:20Z"
        assert not has_ended(other)


def test_refusals_of_the_api_server_have_its_message() -> None:
    error = ApiException(status=403, reason="Forbidden")
    error.body = json.dumps({"message": 'pods "x" is forbidden: exceeded quota: all-servers.'})
    assert refusal(error).startswith(
        'A quota of this hub is used up: pods "x" is forbidden: exceeded quota: all-servers. '
    )
    error.body = json.dumps({"message": "no PriorityClass with name training was found"})
    assert "refuses this server: no PriorityClass with name training was found." in refusal(error)
    error.body = None
    assert "403 Forbidden" in refusal(error)
