"""A NetworkPolicy for each user that allows connections between the user's pods, but not from or to other users' pods.

Gloo and NCCL need connections between pods. A policy cannot select "all pods with the same value of this label", so the
hub creates one policy for each user. The rules that are the same for all users (for the hub, the proxy, DNS and the
internet) are in the hub's manifests or its Helm chart.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubernetes_asyncio.client.rest import ApiException

from spawner_config.refusals import check_owner

EXISTS, MISSING = 409, 404
USER_ANNOTATION = "hub.jupyter.org/username"
"""The annotation in which KubeSpawner stores the full name of the user in pods and volume claims."""


def owner_of(found: Any) -> str | None:
    """Return the full name of the user to whom an object belongs; None if the object has no such annotation."""
    return (found.metadata.annotations or {}).get(USER_ANNOTATION)


def user_policy(name: str, labels: dict[str, str], user: str) -> dict[str, Any]:
    """Return the network policy for the user whose pods have these labels."""
    peers = [{"podSelector": {"matchLabels": labels}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels, "annotations": {USER_ANNOTATION: user}},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}],
            "egress": [{"to": peers}],
        },
    }


class UserPolicies:
    """The network policies of a hub's users in a namespace, which are stored only in the API server."""

    def __init__(self, api: Any, namespace: str) -> None:
        """Store the client, a `NetworkingV1Api`, typed as Any because its type hints do not accept plain dicts."""
        self._api = api
        self._namespace = namespace

    async def ensure(self, policy: dict[str, Any], seconds: float) -> None:
        """Create the policy, or update it if it exists.

        Raises `ApiException`, `TimeoutError`, and `ForeignObjectError` if the policy belongs to another user.
        """
        async with asyncio.timeout(seconds):
            try:
                await self._api.create_namespaced_network_policy(self._namespace, policy)
            except ApiException as exc:
                if exc.status != EXISTS:
                    raise
                metadata = policy["metadata"]
                found = await self._api.read_namespaced_network_policy(metadata["name"], self._namespace)
                check_owner(
                    "network policy", metadata["name"], owner_of(found), metadata["annotations"][USER_ANNOTATION]
                )
                # Update the policy, because an earlier version of the hub may have created it with other rules.
                await self._api.patch_namespaced_network_policy(metadata["name"], self._namespace, policy)

    async def remove(self, name: str, seconds: float) -> None:
        """Remove the policy if it exists; raises `ApiException` and `TimeoutError`."""
        async with asyncio.timeout(seconds):
            try:
                await self._api.delete_namespaced_network_policy(name, self._namespace)
            except ApiException as exc:
                if exc.status != MISSING:
                    raise
