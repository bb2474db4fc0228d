"""Runs servers as pods. A start fails as soon as it cannot succeed, and a stop returns after the pod is removed."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from urllib.parse import urlsplit

from aiohttp import ClientError
from jupyterhub.slugs import safe_slug
from jupyterhub.utils import exponential_backoff
from kubernetes_asyncio.client import V1DeleteOptions
from kubernetes_asyncio.client.rest import ApiException
from kubespawner.clients import shared_client
from traitlets import Integer, Unicode

from spawner_config.kubernetes.informers import WatchingSpawner
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
from spawner_config.kubernetes.policies import MISSING, UserPolicies, owner_of, user_policy
from spawner_config.labels import HUB_LABEL, USER_LABEL
from spawner_config.lifecycle.readiness import LISTEN_SECONDS, StartCleanup, listens, not_listening
from spawner_config.refusals import ForeignObjectError, check_owner, refused_start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jupyterhub.spawner import SpawnException

POLL_SECONDS = 0.5
"""The interval in seconds between checks of a pod. KubeSpawner watches the pods, so a check sends no request."""
TELL_SECONDS = 2.0
"""The interval in seconds between checks for progress events. For each check, KubeSpawner sorts the events of all
pods."""
OVERDUE_SECONDS = 15.0
"""How many seconds after its grace period a deleted pod is treated as gone although its node, which may have failed,
has not confirmed the removal."""
GONE_SECONDS = 10.0
"""A start fails if its pod has been missing for longer than this many seconds. A shorter absence is allowed, because
KubeSpawner may delete a pod and create it again."""
CLAIM_SECONDS = 10.0
"""How many seconds the scheduler may report a newly created volume claim as missing."""
WAIT_SECONDS = 540.0
"""How many seconds a server may wait for a node if its user chose to wait."""


class FarandoleKubeSpawner(StartCleanup, WatchingSpawner):
    """Runs each server in a pod, with a persistent volume claim as the user's home."""

    hub_name = Unicode(help="The label of the hub's objects, for example farandole.", config=True)
    place_seconds = Integer(120, help="How long a pod may wait for a node with enough room.", config=True)
    concurrent_starts = Integer(
        100,
        min=1,
        config=True,
        help="How many servers may be starting at the same time; further starts wait. It replaces "
        "JupyterHub.concurrent_spawn_limit, which also counts servers that only wait in a queue: a long queue would "
        "block all other starts. Example: c.FarandoleKubeSpawner.concurrent_starts = 50",
    )
    wait_for_gpus = False
    _turn: ClassVar[asyncio.Lock] = asyncio.Lock()
    """Held by one start at a time while it waits until fewer than `concurrent_starts` servers are starting. All later
    starts wait for the lock."""
    _starting: ClassVar[set[FarandoleKubeSpawner]] = set()
    """The servers that are starting, including those in a queue of Kueue."""

    _hub_stops: asyncio.Future[None] | None = None
    _other_stop: asyncio.Future[None] | None = None

    @property
    def _stop_future(self) -> asyncio.Future[None]:
        """The future that JupyterHub awaits before it removes a server that is already being stopped.

        JupyterHub does not set this future for the stop after a failed start, although pods need some time to end. All
        requests must await the same future, because a request that awaits a later one could remove the next server with
        the same name.
        """
        if self._hub_stops is not None:
            return self._hub_stops
        if self._other_stop is None or self._other_stop.done():
            self._other_stop = asyncio.ensure_future(self._until_stopped())
        return self._other_stop

    @_stop_future.setter
    def _stop_future(self, future: asyncio.Future[None] | None) -> None:
        self._hub_stops = future

    async def _until_stopped(self) -> None:
        async with asyncio.timeout(self.start_timeout):
            while self._stop_pending:  # noqa: ASYNC110 - the hub tells nobody
                await asyncio.sleep(POLL_SECONDS)

    async def load_user_options(self) -> None:
        """Do nothing, because `OptionsHook` has applied the options; KubeSpawner would use its own profile list."""

    def _expand_env(self, _env: dict[str, str]) -> dict[str, str]:
        # Do not expand values as templates, because KubeSpawner would treat the braces in JSON values as placeholders.
        return {}

    @property
    def user_labels(self) -> dict[str, str]:
        """The labels that identify all pods of a user."""
        return {HUB_LABEL: self.hub_name, USER_LABEL: safe_slug(self.user.name)}

    async def _start(self) -> str:
        # KubeSpawner's `start` stores the future of this method, from which other methods see that a start is in
        # progress.
        try:
            async with self._turn_to_start():
                await self._ensure_policy()
                await self._check_claim()
                return await self._start_or_refuse()
        except ForeignObjectError as exc:
            # The start has created no pod, and a pod with this name would belong to the other user, so do not delete
            # it.
            raise refused_start(str(exc), reason="owner") from exc
        except ApiException as exc:
            self.log.warning("Kubernetes refuses %s: %s", self._log_name, exc)
            await self._withdraw()
            raise refused_start(refusal(exc), reason="refused") from exc
        except BaseException:
            # Delete the pod after a cancellation too, because JupyterHub stops only servers that are already running.
            await self._withdraw()
            self.start_polling()
            raise

    @asynccontextmanager
    async def _turn_to_start(self) -> AsyncIterator[None]:
        """Wait until fewer than `concurrent_starts` servers are starting; servers in a queue do not count."""
        await asyncio.gather(self._start_watching_pods(), self._start_watching_events())
        async with self._turn:
            while self._is_crowded():  # noqa: ASYNC110 - pods tell nobody here
                await asyncio.sleep(POLL_SECONDS)
            self._starting.add(self)
        try:
            yield
        finally:
            self._starting.discard(self)

    def _is_crowded(self) -> bool:
        return sum(not each.in_queue for each in self._starting) >= self.concurrent_starts

    @property
    def in_queue(self) -> bool:
        """Whether the server's pod is waiting in a queue of Kueue."""
        pod = self._pod
        return pod is not None and queued(pod)

    async def _start_or_refuse(self) -> str:
        """Start the pod and return the server's URL; raise `SpawnException` as soon as the start cannot succeed."""
        start = asyncio.ensure_future(self._start_to_the_end())
        failure = asyncio.ensure_future(self._watch_for_failure(old=_uid(self._pod)))
        try:
            await asyncio.wait([start, failure], return_when=asyncio.FIRST_COMPLETED)
            return start.result() if start.done() else failure.result()
        finally:
            start.cancel()
            failure.cancel()
            await asyncio.wait([start, failure])

    async def _start_to_the_end(self) -> str:
        url: str = await super()._start()
        parts = urlsplit(url)
        # While this waits, `_watch_for_failure` detects whether the server has ended.
        if not await listens(str(parts.hostname), int(parts.port or 80), LISTEN_SECONDS):
            raise not_listening()
        return url

    async def _watch_for_failure(self, *, old: str | None) -> NoReturn:
        """Raise `SpawnException` once the pod can no longer start.

        ``old`` is the id of an earlier pod with the same name that may still be ending. The time in a queue is not
        limited.
        """
        loop = asyncio.get_running_loop()
        longest_wait = max(WAIT_SECONDS, self.place_seconds) if self.wait_for_gpus else self.place_seconds
        placed, seen = loop.time(), math.inf
        while True:
            pod = self._pod
            if loop.time() - seen > GONE_SECONDS:
                raise _taken_away()
            if pod is not None and _uid(pod) != old:
                seen = loop.time()
                if fatal_reason(pod):
                    # Read the events only after a failure, because KubeSpawner sorts the events of all pods to find
                    # those of one pod.
                    events = [event["message"] for event in self.events]
                    raise refused_start(str(fatal_reason(pod, events)), reason="pod")
                words = unplaced(pod)
                placed = placed if words else loop.time()
                waited = loop.time() - placed
                if waited > CLAIM_SECONDS and (problem := missing_claim(pod)):
                    raise refused_start(problem, reason="pod")
                if words and waited > longest_wait:
                    raise refused_start(cannot_be_placed(words, longest_wait), reason="place")
            await asyncio.sleep(POLL_SECONDS)

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        # Shield the request, because after a cancellation the pod might otherwise be created after it was deleted.
        making = asyncio.ensure_future(super()._make_create_pod_request(pod, request_timeout))
        try:
            return bool(await asyncio.shield(making))
        except asyncio.CancelledError:
            await asyncio.wait([making])
            raise

    async def _withdraw(self) -> None:
        """Delete the pod of a failed start, even if the watch has not reported it yet."""
        await self._delete_pod(seconds=1)

    async def _delete_pod(self, *, seconds: int) -> None:
        options = V1DeleteOptions(grace_period_seconds=seconds)
        ask = partial(self._make_delete_pod_request, self.pod_name, options, seconds, self.k8s_api_request_timeout)
        message, timeout = f"Could not delete pod {self.pod_name}", self.k8s_api_request_retry_timeout
        try:
            await exponential_backoff(ask, message, timeout=timeout)
        except (ApiException, ClientError, TimeoutError) as exc:
            # Only log this error. After a failed start, the user needs the reason for that failure, and a stop waits
            # until the pod is removed anyway.
            self.log.warning("The pod of %s cannot be deleted: %s", self._log_name, exc)

    async def _ensure_policy(self) -> None:
        labels = self.user_labels
        policy = user_policy(self._policy_name, labels, self.user.name)
        await self._policies.ensure(policy, self.k8s_api_request_retry_timeout)

    async def _check_claim(self) -> None:
        """Raise `ForeignObjectError` if the volume claim of the user's home exists and belongs to another user."""
        if self._pvc_exists:
            return
        try:
            found = await self.api.read_namespaced_persistent_volume_claim(self.pvc_name, self.namespace)
        except ApiException as exc:
            if exc.status != MISSING:
                raise
            return
        check_owner("volume claim", self.pvc_name, owner_of(found), self.user.name)

    @property
    def _policies(self) -> UserPolicies:
        return UserPolicies(shared_client("NetworkingV1Api"), self.namespace)

    @property
    def _policy_name(self) -> str:
        return f"{self.hub_name}-user-{safe_slug(self.user.name)}"

    async def stop(self, now: bool = False) -> None:
        """Stop the pod and return after it is removed.

        A node can take a minute to remove a pod, and the next pod needs the same name. This method therefore deletes
        the pod from the API server as soon as its containers have ended or its node has failed.
        """
        await self._start_watching_pods()
        striking = asyncio.ensure_future(self._strike_off(_uid(self._pod)))
        try:
            await super().stop(now)
        finally:
            striking.cancel()
            await asyncio.wait([striking])

    async def _strike_off(self, uid: str | None) -> None:
        while (pod := self._pod) is not None and _uid(pod) == uid:
            # A failed node never reports the end of a pod, and JupyterHub does not poll a server while it stops it.
            if has_ended(pod) or is_overdue(pod, datetime.now(UTC), OVERDUE_SECONDS):
                await self._delete_pod(seconds=0)
                return
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self) -> int | None:
        """Return None while the server is running or may still start, else its exit code.

        If the node of a deleted pod has failed, this method deletes the pod from the API server, so that its name is
        free again.
        """
        await self._start_watching_pods()
        pod = self._pod
        if pod is not None and is_overdue(pod, datetime.now(UTC), OVERDUE_SECONDS):
            self.log.warning(
                "The node of %s has not confirmed its removal, so the pod is treated as gone", self._log_name
            )
            await self.stop(now=True)
            return 1
        code: int | None = await super().poll()
        return code

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the pod's events, and an event with ``queue`` when the pod enters or leaves a queue of Kueue.

        The hub closes this generator at the end of the start.
        """
        # The start may not have begun these watches yet, since the hub first calls its hooks.
        await asyncio.gather(self._start_watching_pods(), self._start_watching_events())
        shown: set[str] = set()
        waits, percent = False, 0.0
        while True:
            for event in self.events:
                if event["metadata"]["uid"] not in shown:
                    shown.add(event["metadata"]["uid"])
                    percent += (90 - percent) / 3
                    yield {"progress": int(percent), "message": event["message"]}
            if self.in_queue != waits:
                waits = not waits
                yield _queue_event(waits, int(percent))
            await asyncio.sleep(TELL_SECONDS)

    async def delete_forever(self) -> None:
        """Remove the network policy of a user who is being deleted; the user's home is kept."""
        if not self.name:
            await self._policies.remove(self._policy_name, self.k8s_api_request_retry_timeout)


def _uid(pod: dict[str, Any] | None) -> str | None:
    return None if pod is None else str(pod["metadata"]["uid"])


def _taken_away() -> SpawnException:
    return refused_start(
        "The server's pod was removed while it started: its node was drained, or a pod of higher priority needed "
        "the room. Start it again.",
        reason="gone",
        status_code=500,
    )


def _queue_event(waits: bool, percent: int) -> dict[str, Any]:
    if waits:
        return {"progress": percent, "message": "waiting in the queue until there is room for all", "queue": 1}
    return {"progress": percent, "message": "admitted by the queue, starting", "queue": 0}
