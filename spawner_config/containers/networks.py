"""A network for each user, in which the user's servers reach only each other, the hub and the proxy."""

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
from spawner_config.containers.names import slug
from spawner_config.labels import HUB_LABEL, OWNER_LABEL
from spawner_config.refusals import check_owner

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from ipaddress import IPv4Network

    from spawner_config.containers.addresses import AddressRange

NO_ADDRESS_OPTION = "com.docker.network.bridge.inhibit_ipv4"
"""This option gives the host no address in the network, so that containers cannot reach the host's services there."""
ALREADY_CONNECTED = 403, "already exists in network"
"""The HTTP status and message with which the engine refuses to connect a container twice. The message is compared too,
because other refusals, for example by the engine filter, have the same status."""
NOT_FOUND = 404
CLAIM_ATTEMPTS = 64
ENGINE_ERRORS = (APIError, requests.RequestException)
"""Errors of the engine or the engine filter, and of the connection to them."""


class NetworkError(RuntimeError):
    """Raised when a user's network cannot be created. The message contains the reason and a remedy."""


class UserNetworks:
    """The networks of a hub's users on one engine.

    - ``services`` maps the names of the containers that every user must reach to their names in the networks. Servers
      start without those in ``optional`` if these have no container.
    - A lock covers both the lookup and the creation of a network. Without it, two servers of a user that start at the
      same time could create two networks, or two users could select the same subnet.
    - The engine stores all networks, so the hub has nothing to restore after a restart.
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
        optional: Collection[str] = (),
    ) -> None:
        """Store the options that all networks share; if ``internet`` is true, servers can reach the internet."""
        self._client = client
        self._name = name
        self._services = services
        self._optional = optional
        self._absent: set[str] = set()
        self._addresses = addresses
        self._internet = internet
        self._mtu = mtu
        self._lock = asyncio.Lock()
        self._joined = False
        self._holders: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)

    def name_of(self, user: str) -> str:
        """Return the name of a user's network."""
        return f"{self._name}-user-{slug(user)}"

    async def hold(self, user: str, server: str) -> str:
        """Create the user's network if it does not exist, keep it while ``server`` uses it, and return its name.

        Raises `NetworkError`, or `ForeignObjectError` if the network belongs to another user.
        """
        name = self.name_of(user)
        async with self._lock:
            # Shield the call, because the thread continues after a cancellation and the lock must be held until the
            # thread ends.
            making = asyncio.ensure_future(asyncio.to_thread(self._ensure, name, user))
            try:
                await asyncio.shield(making)
            except asyncio.CancelledError:
                await asyncio.wait([making])
                raise
            self._holders[name].add((user, server))
        return name

    async def release(self, user: str, server: str) -> None:
        """Record that ``server`` no longer uses its user's network, and remove the network if no other server does."""
        name = self.name_of(user)
        async with self._lock:
            self._holders[name].discard((user, server))
            if not self._holders[name]:
                await asyncio.to_thread(self._remove_if_empty, name)

    def rejoin(self) -> None:
        """Connect the hub and the proxy to all existing networks, because recreated containers lose their connections.

        The hub calls this before it looks for running servers, when no other call can be in progress. An error does not
        end the hub or delay the other users: it is logged, and `keep_joined` tries again later.
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
        """Connect the hub and the proxy again if one of them was recreated (``lost``) or if the last attempt failed.

        Otherwise, this method sends no request to the engine and does not take the lock that starting servers need.
        """
        if self._joined and not lost:
            return
        async with self._lock:
            await asyncio.to_thread(self.rejoin)

    def _rejoined(self, network: dict[str, Any]) -> bool:
        try:
            return self._connect_services(self._client.inspect_network(network["Id"]))
        except (*ENGINE_ERRORS, NetworkError) as exc:
            # This can happen while the container is being recreated or while the engine filter is restarting.
            app_log.warning("The hub's services cannot be connected to %s: %s", network["Name"], reason(exc))
            return False

    def _ours(self) -> list[dict[str, Any]]:
        networks: list[dict[str, Any]] = self._client.networks(filters={"label": f"{HUB_LABEL}={self._name}"})
        return [network for network in networks if network["Name"].startswith(self.name_of(""))]

    def _ensure(self, name: str, user: str) -> None:
        network = self._inspect(name) or self._create(name, user)
        check_owner("network", name, (network["Labels"] or {}).get(OWNER_LABEL), user)
        if not self._connect_services(self._allocated(network)):
            self._joined = False

    def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            network: dict[str, Any] = self._client.inspect_network(name)
        except NotFound:
            return None
        return network

    def _create(self, name: str, user: str) -> dict[str, Any]:
        taken = [subnet for network in self._client.networks() for subnet in subnets_of(network)]
        refusal: Exception | None = None
        for _, subnet in zip(range(CLAIM_ATTEMPTS), self._addresses.free(taken), strict=False):
            try:
                self._client.create_network(
                    name,
                    check_duplicate=True,
                    internal=not self._internet,
                    labels={HUB_LABEL: self._name, OWNER_LABEL: user},
                    **self._specification(subnet),
                )
            except APIError as exc:
                # The subnet may overlap something that the engine does not list, such as a route of the host, so try
                # the next subnet. The network can also exist already, if a hub that was killed had just created it.
                refusal = exc
            network = self._inspect(name)
            if network is not None:
                return network
        raise NetworkError(
            f"The network {name} could not be created in {self._addresses.whole}: "
            f"{refusal.explanation if isinstance(refusal, APIError) else 'all of it is in use'}. "
            "Set FARANDOLE_SUBNETS to a range of addresses that nothing else uses."
        ) from refusal

    def _specification(self, subnet: IPv4Network) -> dict[str, Any]:
        """Return the engine client's arguments for a network with this subnet."""
        options = {MTU_OPTION: str(self._mtu)}
        return {
            "driver": "bridge",
            "options": options if self._internet else {**options, NO_ADDRESS_OPTION: "true"},
            "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
        }

    def _allocated(self, network: dict[str, Any]) -> dict[str, Any]:
        """Return the network's description including its subnet. A bridge network has a subnet immediately."""
        return network

    def _endpoint(self, container: str, network: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - others need it
        """Return the engine client's arguments for connecting a service to the network."""
        return {"aliases": [self._services[container]]}

    def _connect_services(self, network: dict[str, Any]) -> bool:
        """Connect the services to a network, and return whether all of them have a container."""
        present = _present(network)
        connected = [self._connect_service(name, network) for name in self._services if name not in present]
        return all(connected)

    def _connect_service(self, container: str, network: dict[str, Any]) -> bool:
        try:
            self._client.connect_container_to_network(container, network["Id"], **self._endpoint(container, network))
        except APIError as exc:
            if exc.status_code == NOT_FOUND and container in self._optional:
                self._note_absence(container)
                return False
            # The engine does not list stopped containers that are connected.
            status, words = ALREADY_CONNECTED
            if exc.status_code != status or words not in reason(exc):
                raise
        self._absent.discard(container)
        return True

    def _note_absence(self, container: str) -> None:
        if container not in self._absent:
            self._absent.add(container)
            app_log.warning("There is no container %s. It joins the users' networks when it exists.", container)

    def _remove_if_empty(self, name: str) -> None:
        network = self._inspect(name)
        if network is None or self._has_servers(network):
            return
        for container in _present(network) & set(self._services):
            self._client.disconnect_container_from_network(container, network["Id"], force=True)
        self._remove(network)

    def _has_servers(self, network: dict[str, Any]) -> bool:
        """Return whether the network has members other than the hub and the proxy."""
        return bool(_present(network) - set(self._services))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove a network that has no members."""
        self._client.remove_network(network["Id"])


def _present(network: dict[str, Any]) -> set[str]:
    """Return the names of a network's running containers; a swarm lists only those on this machine."""
    return {container["Name"] for container in (network["Containers"] or {}).values()}


def reason(exc: Exception) -> str:
    """Return the message of one of the `ENGINE_ERRORS`."""
    return str(getattr(exc, "explanation", None) or exc)
