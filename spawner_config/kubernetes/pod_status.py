"""Pure functions that derive the outcome of a server's start from the state of its pod."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubernetes_asyncio.client.rest import ApiException

NO_IMAGE = {"ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError"}
NO_CONTAINER = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
PULL_FAILED = "Failed to pull image"
NO_VOLUME = re.compile(
    "unbound immediate PersistentVolumeClaims|persistent volumes to bind|binding volumes|enough free storage"
    "|volume node affinity conflict|PersistentVolume's node affinity|bound to non-existent"
)
NO_ROOM = re.compile("Insufficient|Too many pods")
"""Matches the scheduler's messages about missing resources, which become free when other servers stop."""
MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')


def fatal_reason(pod: dict[str, Any], events: Sequence[str] = ()) -> str | None:
    """Return why a pod can never run its server, with a remedy; None if it is running or may still start.

    ``events`` are the messages of the pod's events, in chronological order.
    """
    for container in _containers(pod):
        if problem := _container_problem(container, events):
            return problem
    if pod["status"].get("phase") in {"Failed", "Succeeded"}:
        return _ended(" ".join(filter(None, (pod["status"].get("reason"), pod["status"].get("message")))))
    return None


def missing_claim(pod: dict[str, Any]) -> str | None:
    """Return the error message if a volume claim of the pod is missing, else None.

    The scheduler may report this for a short time after a claim was created.
    """
    found = MISSING_CLAIM.search(unplaced(pod) or "")
    if found is None:
        return None
    return (
        f"There is no volume claim {found[1]!r} for this server. The administrator must create it in the "
        "hub's namespace, or remove it from the hub's settings."
    )


def unplaced(pod: dict[str, Any]) -> str | None:
    """Return why the scheduler cannot place a pod, or None if it reports no reason or the pod is queued."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return None if _is_gate(condition) else str(condition.get("message") or "no node has room for it")
    return None


def queued(pod: dict[str, Any]) -> bool:
    """Return whether the pod is waiting in a queue of Kueue; the scheduler ignores it until Kueue admits it."""
    return any(_is_gate(condition) for condition in pod["status"].get("conditions") or [])


def is_overdue(pod: dict[str, Any], now: datetime, seconds: float) -> bool:
    """Return whether the node should have removed a deleted pod at least ``seconds`` ago, but has not confirmed it."""
    deleted = pod["metadata"].get("deletionTimestamp")
    return bool(deleted) and (now - _time(deleted)).total_seconds() > seconds


def has_ended(pod: dict[str, Any]) -> bool:
    """Return whether all containers of a deleted pod have ended; its node may need a minute more to remove it."""
    known = _containers(pod)
    return (
        "deletionTimestamp" in pod["metadata"] and bool(known) and not any("running" in each["state"] for each in known)
    )


def cannot_be_placed(words: str, seconds: float) -> str:
    """Return the error message for a pod that has no node or no usable volume after ``seconds``."""
    if NO_VOLUME.search(words) and not NO_ROOM.search(words):
        return (
            f"Kubernetes found no volume for this server within {seconds:.0f} s: {words.rstrip('.')}. Try again in a "
            "minute. If this continues, the administrator must check the claims in the hub's namespace, their access "
            "modes and storage classes: for homes FARANDOLE_HOME_ACCESS and FARANDOLE_HOME_CLASS, or the "
            "cluster's default."
        )
    return (
        f"Kubernetes found no place for this server within {seconds:.0f} s: {words.rstrip('.')}. Choose a smaller "
        "profile or fewer workers, or try again when others have stopped theirs."
    )


def refusal(exc: ApiException) -> str:
    """Return the error message for an object that the API server refuses, including the server's reason."""
    words = words_of(exc)
    if "exceeded quota" in words:
        return f"A quota of this hub is used up: {words}. Stop servers that you do not need, or ask the administrator."
    return f"Kubernetes refuses this server: {words}. Ask the administrator, who finds more in the hub's log."


def words_of(exc: ApiException) -> str:
    """Return the API server's reason for a refusal."""
    try:
        words = json.loads(exc.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        words = f"{exc.status} {exc.reason}"
    return str(words).rstrip(".")


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["status"].get("containerStatuses") or [])


def _container_problem(container: dict[str, Any], events: Sequence[str]) -> str | None:
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    reason, message = waiting.get("reason"), waiting.get("message") or ""
    if reason in NO_IMAGE:
        # The container's state says only that the node will try again; the reason is in an event.
        failures = [text for text in events if text.startswith(PULL_FAILED)]
        why = failures[-1] if failures else message or reason
        return (
            f"The image {container['image']} is not available on its node: {why.rstrip('.')}. If you have named "
            "it, check its name and its tag. The administrator must load it there or name an image in a registry "
            "(FARANDOLE_NOTEBOOK_IMAGE, or `image` of the profile), with FARANDOLE_PULL_SECRETS if the registry "
            "requires a login."
        )
    if reason in NO_CONTAINER:
        return (
            f"The server's container cannot be created: {message or reason}. Ask the administrator for the hub's log."
        )
    if terminated is not None:
        return _ended(f"{terminated.get('reason', 'Error')}, exit code {terminated.get('exitCode')}")
    return None


def _ended(words: str) -> str:
    return (
        f"The server ended while it started ({words or 'without a reason'}). If it ran out of memory, choose a larger "
        "profile. If it ends again, ask the administrator for the hub's log."
    )


def _is_gate(condition: dict[str, Any]) -> bool:
    return condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated"


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
