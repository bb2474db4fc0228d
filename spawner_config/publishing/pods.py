"""Versions in volume claims of Kubernetes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError
from kubernetes_asyncio.client.rest import ApiException

from spawner_config.kubernetes.pod_status import words_of
from spawner_config.labels import HUB_LABEL
from spawner_config.publishing.command import HOME, PLACE, publish_command
from spawner_config.publishing.publications import Ended, PublicationError, VersionStore

if TYPE_CHECKING:
    from farandole.datasets.versions.names import DataVersion

    from spawner_config.kubernetes.settings import KubernetesSettings
    from spawner_config.publishing.publications import Order

POLL_SECONDS = 1.0
START_SECONDS = 1200
"""How many seconds the pod may take to start, which includes the creation of the volume and pulling the image."""
GONE_SECONDS = 60
"""How many seconds an earlier pod of the same name may take to end."""
OUTAGE_SECONDS = 120
"""How many seconds the API server may not answer while a folder is copied, for example because it is restarted."""
NOT_FOUND = 404
REFUSALS = {400, 401, 403}
DELETED = "the pod that copies it was deleted, for example because its node has failed or is maintained; try again"
SIZE_LABEL = "farandole.mib"
"""The label of claims of versions with their size in MiB. The API server may write the size itself in another unit."""
USER_ID = 1000
MIB = 2**20
SPARE_MIB = 256
"""The size of a volume in MiB that the file system and the manifest take."""
RESULT = "/dev/termination-log"
"""The file whose content Kubernetes keeps in the status of a pod. The hub may not read the logs of pods."""
API_ERRORS = (ApiException, ClientError, TimeoutError)


class ClaimStore(VersionStore):
    """The volume claims in the namespace of the hub's servers."""

    def __init__(self, deployment: KubernetesSettings) -> None:
        self._deployment = deployment

    async def copy(self, version: DataVersion, order: Order) -> Ended | None:
        """Copy a folder to the claim of a version."""
        pods = _Pods(order.spawner.api, order.spawner.namespace)
        # The names of servers' pods have no dot, so that none of them is replaced.
        name = f"{self._deployment.name}-publish.{version.name}"
        try:
            claim = publication_claim(self._deployment, version, order.bytes)
            if not await pods.claim(claim, order.bytes // MIB + SPARE_MIB):
                return None
            await pods.remove(name)
            await pods.create(publication_pod(self._deployment, name, version, order))
            try:
                return await pods.ended(name)
            finally:
                with suppress(*API_ERRORS):
                    await pods.delete(name)
        except ApiException as exc:
            raise PublicationError(f"Kubernetes refuses what copies the folder: {words_of(exc)}") from exc
        except (ClientError, TimeoutError) as exc:
            raise PublicationError(f"Kubernetes does not answer the hub ({exc}); try again in a minute") from exc


class _Pods:
    """The requests about the pods of publications, and about their claims."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def claim(self, claim: dict[str, Any], mib: int) -> bool:
        """Create a claim if there is none with its name; return whether it is of this hub and has at least ``mib``."""
        name, labels = claim["metadata"]["name"], claim["metadata"]["labels"]
        try:
            found = await self._api.read_namespaced_persistent_volume_claim(name, self._namespace)
        except ApiException as exc:
            if exc.status != NOT_FOUND:
                raise
            await self._api.create_namespaced_persistent_volume_claim(self._namespace, claim)
            return True
        has = found.metadata.labels or {}
        return has.get(HUB_LABEL) == labels[HUB_LABEL] and int(has.get(SIZE_LABEL, 0)) >= mib

    async def create(self, pod: dict[str, Any]) -> None:
        """Create a pod."""
        await self._api.create_namespaced_pod(self._namespace, pod)

    async def ended(self, name: str) -> Ended:
        """Wait until a pod has ended, which takes as long as the folder is large."""
        loop = asyncio.get_running_loop()
        end = loop.time() + START_SECONDS
        while True:
            status = await self._status(name)
            if status.phase in {"Succeeded", "Failed"}:
                return _ended(status)
            if status.phase == "Pending" and loop.time() > end:
                raise PublicationError(f"the pod that copies it did not start in {START_SECONDS} s{_why(status)}")
            await asyncio.sleep(POLL_SECONDS)

    async def _status(self, name: str) -> Any:
        """Return the status of a pod, also if the API server does not answer for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + OUTAGE_SECONDS
        while True:
            try:
                found = await self._api.read_namespaced_pod(name, self._namespace)
            except API_ERRORS as exc:
                status = getattr(exc, "status", None)
                if status == NOT_FOUND:
                    raise PublicationError(DELETED) from exc
                if loop.time() > end or status in REFUSALS:
                    raise
                await asyncio.sleep(POLL_SECONDS)
                continue
            # The pod of a node that has failed remains in this state.
            if found.metadata.deletion_timestamp is not None:
                raise PublicationError(DELETED)
            return found.status

    async def remove(self, name: str) -> None:
        """Delete a pod that an earlier process of the hub has left, and wait until it has ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + GONE_SECONDS
        while await self.delete(name):
            if loop.time() > end:
                raise PublicationError(f"the pod {name} does not end; the administrator can delete it")
            await asyncio.sleep(POLL_SECONDS)

    async def delete(self, name: str) -> bool:
        """Delete a pod, and return whether it existed."""
        try:
            await self._api.delete_namespaced_pod(name, self._namespace, grace_period_seconds=1)
        except ApiException as exc:
            if exc.status != NOT_FOUND:
                raise
            return False
        return True


def publication_claim(deployment: KubernetesSettings, version: DataVersion, size: int) -> dict[str, Any]:
    """Return the claim for a version with ``size`` bytes. Its class and its access mode are those of homes."""
    mib = size * 11 // 10 // MIB + SPARE_MIB
    spec: dict[str, Any] = {
        "accessModes": [deployment.home_access],
        "resources": {"requests": {"storage": f"{mib}Mi"}},
    }
    if deployment.home_class:
        spec["storageClassName"] = deployment.home_class
    labels = {HUB_LABEL: deployment.name, SIZE_LABEL: str(mib)}
    metadata = {"name": version.volume, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def publication_pod(deployment: KubernetesSettings, name: str, version: DataVersion, order: Order) -> dict[str, Any]:
    """Return the pod that copies a folder. The network policies admit only its requests to name servers."""
    mounts = {"home": (order.spawner.pvc_name, HOME, True), "version": (version.volume, PLACE, False)}
    container = {
        "name": "publish",
        "image": deployment.notebook_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*publish_command(order.folder), "--result", RESULT],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": key, "mountPath": path, "readOnly": read_only} for key, (_, path, read_only) in mounts.items()
        ],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "imagePullSecrets": [{"name": secret} for secret in deployment.pull_secrets],
        "securityContext": {
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": key, "persistentVolumeClaim": {"claimName": claim}} for key, (claim, *_) in mounts.items()
        ],
    }
    labels = {**deployment.pod_labels, HUB_LABEL: deployment.name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _ended(status: Any) -> Ended:
    found = status.container_statuses[0].state.terminated if status.container_statuses else None
    if found is None:
        return Ended(status=1, outcome=str(status.message or status.reason or "its node has failed"))
    return Ended(status=found.exit_code, outcome=found.message or found.reason or "")


def _why(status: Any) -> str:
    """Return what Kubernetes says about a pod that has not started, such as that no node has room."""
    said = [str(each.message) for each in status.conditions or () if each.status != "True" and each.message]
    waiting = [each.state.waiting for each in status.container_statuses or () if each.state and each.state.waiting]
    said += [str(each.message or each.reason) for each in waiting]
    return f": {said[0]}" if said else ""
