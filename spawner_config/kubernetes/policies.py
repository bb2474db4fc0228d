"""A NetworkPolicy for each user, with which the user's pods reach each other but not the pods of other users.

Gloo and NCCL need connections between pods. A policy cannot say "with the same value of this label", so the hub creates
one for each user. The other rules, the same
for all users' pods (hub and proxy, name server, internet), are in the hub's manifests or its chart.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubernetes_asyncio.client.rest import ApiException

from spawner_config.refusals import check_owner

EXISTS, MISSING = 409, 404
USER_ANNOTATION = "hub.jupyter.org/username"
"""KubeSpawner gives pods and claims this annotation with the full name of their user."""


def owner_of(found: Any) -> str | None:
    """Return the full name of the user that an object of the cluster belongs to; None if it names none."""
    return (found.metadata.annotations or {}).get(USER_ANNOTATION)


def user_policy(name: str, labels: dict[str, str], user: str) -> dict[str, Any]:
    """Return the policy of a user whose pods have these labels."""
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
    """The policies of one hub's users, in one namespace; the API server keeps all state."""

    def __init__(self, api: Any, namespace: str) -> None:
        """Use ``api``, a `NetworkingV1Api`, whose types accept no plain objects."""
        self._api = api
        self._namespace = namespace

    async def ensure(self, policy: dict[str, Any], seconds: float) -> None:
        """Create the policy, or update an existing one.

        Raises `ApiException` and `TimeoutError`, and `ForeignObjectError` if it belongs to another user.
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
                # An earlier version of the hub may have created the policy with other content.
                await self._api.patch_namespaced_network_policy(metadata["name"], self._namespace, policy)

    async def remove(self, name: str, seconds: float) -> None:
        """Return once the policy is removed; raises `ApiException` and `TimeoutError`."""
        async with asyncio.timeout(seconds):
            try:
                await self._api.delete_namespaced_network_policy(name, self._namespace)
            except ApiException as exc:
                if exc.status != MISSING:
                    raise
