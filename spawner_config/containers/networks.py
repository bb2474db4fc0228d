"""A network for each user: the user's containers reach each other, the hub and the proxy, and no other containers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import docker
import requests
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig, IPAMPool
from tornado.log import app_log

from spawner_config.containers.addresses import MTU_OPTION, subnets_of
from spawner_config.labels import HUB_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Network

    from spawner_config.containers.addresses import AddressRange

NO_ADDRESS_OPTION = "com.docker.network.bridge.inhibit_ipv4"
"""Without an address of the host in the network, containers cannot reach the services of the host there."""
ALREADY_CONNECTED = 403, "already exists in network"
"""The engine's status and message; each refusal has this status, also those of the engine filter."""
CLAIM_ATTEMPTS = 64
ENGINE_ERRORS = (APIError, requests.RequestException)
"""Refusals of the engine or its filter, and the errors of the client if one of them does not answer."""


class NetworkError(RuntimeError):
    """Raised when a user's network cannot be created; says why and what to do."""


class UserNetworks:
    """The networks of a hub's users on one engine.

    - ``services`` maps the names of the containers that every user must reach to their names in the networks.
    - One lock covers both the lookup and the creation: two servers of a user that start together share one network, and
    two users never claim the same piece of the address range.
    - The state is in the engine, so that the hub needs to remember nothing over a restart.
    """

    def __init__(
        self,
        client: docker.APIClient,
        *,
        name: str,
        services: Mapping[str, str],
        addresses: AddressRange,
        internet: bool,
        mtu: int,
    ) -> None:
        """Store what all networks share; ``internet`` says whether they have a route to the outside."""
        self._client = client
        self._name = name
        self._services = services
        self._addresses = addresses
        self._internet = internet
        self._mtu = mtu
        self._lock = asyncio.Lock()
        self._joined = False
        self._holders: defaultdict[str, set[str]] = defaultdict(set)

    def name_of(self, user: str) -> str:
        """Return the name of a user's network; ``user`` is a slug."""
        return f"{self._name}-user-{user}"

    async def hold(self, user: str, server: str) -> str:
        """Return the name of the user's network, created if missing, and keep it for ``server``.

        Raises `NetworkError`.
        """
        name = self.name_of(user)
        async with self._lock:
            # Shielded: if the start is cancelled, the lock must stay held until the engine is done.
            making = asyncio.ensure_future(asyncio.to_thread(self._ensure, name))
            try:
                await asyncio.shield(making)
            except asyncio.CancelledError:
                await asyncio.wait([making])
                raise
            self._holders[name].add(server)
        return name

    async def release(self, user: str, server: str) -> None:
        """Release the network for ``server``; the last server of the user removes it."""
        name = self.name_of(user)
        async with self._lock:
            self._holders[name].discard(server)
            if not self._holders[name]:
                await asyncio.to_thread(self._remove_if_empty, name)

    def rejoin(self) -> None:
        """Connect the services to the existing networks: a container that was recreated has lost its connections.

        The hub calls this before it looks for its servers, and so before anything else uses this object. If a network
        cannot be joined, this is logged and `keep_joined` tries again later, so that the hub and other users do not
        wait.
        """
        try:
            found = self._ours()
        except ENGINE_ERRORS as exc:
            self._joined = False
            app_log.warning("The users' networks cannot be listed: %s", reason(exc))
        else:
            missed = [network for network in found if not self._rejoined(network)]
            self._joined = not missed

    async def keep_joined(self, *, lost: bool) -> None:
        """Connect the services again if one has ``lost`` its networks, or if the last attempt failed.

        Otherwise this sends no request to the engine, and no start waits for the lock.
        """
        if self._joined and not lost:
            return
        async with self._lock:
            await asyncio.to_thread(self.rejoin)

    def _rejoined(self, network: dict[str, Any]) -> bool:
        try:
            self._connect_services(self._client.inspect_network(network["Id"]))
        except (*ENGINE_ERRORS, NetworkError) as exc:
            # For example while the container is recreated or the filter restarts.
            app_log.warning("The hub's parts cannot be connected to %s: %s", network["Name"], reason(exc))
            return False
        return True

    def _ours(self) -> list[dict[str, Any]]:
        networks: list[dict[str, Any]] = self._client.networks(filters={"label": f"{HUB_LABEL}={self._name}"})
        return [network for network in networks if network["Name"].startswith(self.name_of(""))]

    def _ensure(self, name: str) -> None:
        self._connect_services(self._allocated(self._inspect(name) or self._create(name)))

    def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            network: dict[str, Any] = self._client.inspect_network(name)
        except NotFound:
            return None
        return network

    def _create(self, name: str) -> dict[str, Any]:
        taken = [subnet for network in self._client.networks() for subnet in subnets_of(network)]
        refusal: Exception | None = None
        for _, subnet in zip(range(CLAIM_ATTEMPTS), self._addresses.free(taken), strict=False):
            try:
                self._client.create_network(
                    name,
                    check_duplicate=True,
                    internal=not self._internet,
                    labels={HUB_LABEL: self._name},
                    **self._specification(subnet),
                )
            except APIError as exc:
                # A range that the engine does not list, such as a route of the host, may overlap: try the next piece. A
                # hub that was killed may also have just created the network.
                refusal = exc
            network = self._inspect(name)
            if network is not None:
                return network
        raise NetworkError(
            f"No network for {name} could be created in {self._addresses.whole}: "
            f"{refusal.explanation if isinstance(refusal, APIError) else 'all of it is in use'}. "
            "Set FARANDOLE_SUBNETS to a range of addresses that nothing else uses."
        ) from refusal

    def _specification(self, subnet: IPv4Network) -> dict[str, Any]:
        """Return the options of a network with these addresses, for the engine's client."""
        options = {MTU_OPTION: str(self._mtu)}
        return {
            "driver": "bridge",
            "options": options if self._internet else {**options, NO_ADDRESS_OPTION: "true"},
            "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
        }

    def _allocated(self, network: dict[str, Any]) -> dict[str, Any]:
        """Return the network after the engine has assigned its addresses. A bridge has them from its creation on."""
        return network

    def _endpoint(self, container: str, network: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - others need it
        """Return the options of a service's connection to a network, for the engine's client."""
        return {"aliases": [self._services[container]]}

    def _connect_services(self, network: dict[str, Any]) -> None:
        present = _present(network)
        for container in self._services:
            if container in present:
                continue
            try:
                self._client.connect_container_to_network(
                    container, network["Id"], **self._endpoint(container, network)
                )
            except APIError as exc:
                # A stopped container is connected but not listed.
                status, words = ALREADY_CONNECTED
                if exc.status_code != status or words not in reason(exc):
                    raise

    def _remove_if_empty(self, name: str) -> None:
        network = self._inspect(name)
        if network is None or self._has_servers(network):
            return
        for container in _present(network) & set(self._services):
            self._client.disconnect_container_from_network(container, network["Id"], force=True)
        self._remove(network)

    def _has_servers(self, network: dict[str, Any]) -> bool:
        """Whether the network has members other than the services."""
        return bool(_present(network) - set(self._services))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove a network without members."""
        self._client.remove_network(network["Id"])


def _present(network: dict[str, Any]) -> set[str]:
    """Return the names of the containers in a network; on a swarm, only of those on this machine."""
    return {container["Name"] for container in (network["Containers"] or {}).values()}


def reason(exc: Exception) -> str:
    """Return the message of one of `ENGINE_ERRORS`."""
    return str(getattr(exc, "explanation", None) or exc)
