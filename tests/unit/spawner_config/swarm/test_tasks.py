"""Tests for the state of a task, which is read from the swarm's description of the task."""

from __future__ import annotations

from typing import Any

import pytest

from spawner_config.swarm.tasks import Task, newest

NO_NODE = "no suitable node (insufficient resources on 2 nodes)"


def found(state: str, desired: str = "running", **more: Any) -> dict[str, Any]:
    """Return a task as an engine of version 26 describes it, without the fields that the code does not read."""
    status = {"State": state, "Message": state, **more.pop("status", {})}
    return {"CreatedAt": "2026-11-22T20:33:54Z", "Status": status, "DesiredState": desired, **more}


def attached(network: str, address: str) -> dict[str, Any]:
    return {"Network": {"Spec": {"Name": network}}, "Addresses": [address]}


@pytest.mark.parametrize(
    ("state", "desired", "searching", "runs", "over"),
    [
        ("new", "running", True, False, False),
        ("pending", "running", True, False, False),
        ("pending", "shutdown", False, False, True),
        ("assigned", "running", False, False, False),
        ("preparing", "running", False, False, False),
        ("starting", "running", False, False, False),
        ("running", "running", False, True, False),
        # The node is down, so the task keeps its last state, although the swarm no longer wants the task to run.
        ("running", "shutdown", False, False, True),
        ("running", "remove", False, False, True),
        ("complete", "shutdown", False, False, True),
        ("failed", "running", False, False, True),
        ("rejected", "running", False, False, True),
        ("orphaned", "shutdown", False, False, True),
    ],
)
def test_a_task_is_pending_running_or_ended(state: str, desired: str, searching: bool, runs: bool, over: bool) -> None:
    task = Task.of(found(state, desired))
    assert (task.searching, task.runs, task.over) == (searching, runs, over)


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (
            {"Err": "task: non-zero exit (137)", "ContainerStatus": {"ExitCode": 137}},
            "failed: task: non-zero exit (137)",
        ),
        ({"ContainerStatus": {"ExitCode": 3}}, "failed: exit code 3"),
        ({"ContainerStatus": {"ExitCode": 0}}, "failed"),
        ({}, "failed"),
    ],
)
def test_an_end_has_a_reason(status: dict[str, Any], end: str) -> None:
    assert Task.of(found("failed", status=status)).end == end


def test_the_swarms_reason_is_kept() -> None:
    assert Task.of(found("pending", status={"Err": NO_NODE})).reason == NO_NODE


def test_addresses_are_listed_by_network_without_their_mask() -> None:
    attachments = [attached("farandole-user-ada", "10.213.0.3/25"), {"Network": {"Spec": {"Name": "other"}}}]
    task = Task.of(found("running", NodeID="n1", NetworksAttachments=attachments))
    assert (task.node, task.addresses) == ("n1", {"farandole-user-ada": "10.213.0.3"})
    assert Task.of(found("new")).addresses == {}


def test_the_newest_task_counts() -> None:
    older, newer = found("failed", CreatedAt="2026-11-22T20:00:00Z"), found("running", CreatedAt="2026-11-22T20:00:01Z")
    task = newest([newer, older])
    assert task is not None
    assert task.state == "running"
    assert newest([]) is None
