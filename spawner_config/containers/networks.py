"""A network for each user: a user's containers reach each other, the hub and the proxy, and nobody else's."""

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
"""The host itself has no address in the network, so that its own services cannot be reached there."""
ALREADY_CONNECTED = 403, "already exists in network"
"""The engine's status and words; the status alone is that of every refusal, the engine filter's too."""
CLAIM_ATTEMPTS = 64
ENGINE_ERRORS = (APIError, requests.RequestException)
"""What the engine or its filter refuses, and what comes of either when it does not answer."""


class NetworkError(RuntimeError):
    """Raised when a user's network cannot be made; says why and what to do."""


class UserNetworks:
    """The networks of a hub's users on one engine.

    ``services`` maps the names of the containers that every user must reach to the names they have in those networks.
    One lock is held across looking and making: two servers of one user that start together share one network, and two
    users never claim one piece of the address range. The engine has the state; after a restart of the hub nothing
    needs to be remembered.
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
        """Keep what all networks share: whether containers reach what is outside, and packets of how many bytes fit."""
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
        """Return the name of the network of a user, given as a slug."""
        return f"{self._name}-user-{user}"

    async def hold(self, user: str, server: str) -> str:
        """Return the name of the user's network, made where it is missing, and keep it for ``server``.

        Raises `NetworkError`.
        """
        name = self.name_of(user)
        async with self._lock:
            # Whole, even where the start is given up: the lock must not be free while the engine is still at it.
            making = asyncio.ensure_future(asyncio.to_thread(self._ensure, name))
            try:
                await asyncio.shield(making)
            except asyncio.CancelledError:
                await asyncio.wait([making])
                raise
            self._holders[name].add(server)
        return name

    async def release(self, user: str, server: str) -> None:
        """Give the network back for ``server``; it is removed with the user's last server."""
        name = self.name_of(user)
        async with self._lock:
            self._holders[name].discard(server)
            if not self._holders[name]:
                await asyncio.to_thread(self._remove_if_empty, name)

    def rejoin(self) -> None:
        """Connect the services to the networks that there are: a container that was made anew has lost them.

        To be called before the hub looks for its servers, and so before anything else uses this object. A network that
        cannot be joined is logged and left to `keep_joined`: it keeps neither the hub nor other users waiting.
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
        """Do the same while the hub runs, where a service has ``lost`` its networks or the last time was no success.

        Otherwise the engine is not asked, and no start waits for the lock.
        """
        if self._joined and not lost:
            return
        async with self._lock:
            await asyncio.to_thread(self.rejoin)

    def _rejoined(self, network: dict[str, Any]) -> bool:
        try:
            self._connect_services(self._client.inspect_network(network["Id"]))
        except ENGINE_ERRORS as exc:
            # The container is just being made anew, or the filter restarts, say.
            app_log.warning("The hub's parts cannot be connected to %s: %s", network["Name"], reason(exc))
            return False
        return True

    def _ours(self) -> list[dict[str, Any]]:
        networks: list[dict[str, Any]] = self._client.networks(filters={"label": f"{HUB_LABEL}={self._name}"})
        return [network for network in networks if network["Name"].startswith(self.name_of(""))]

    def _ensure(self, name: str) -> None:
        self._connect_services(self._inspect(name) or self._create(name))

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
                # What the engine cannot list, as a route of the host, may overlap too: the next piece may do. Or the
                # network was made just now, by a hub that was killed in the middle of it.
                refusal = exc
            network = self._inspect(name)
            if network is not None:
                return network
        raise NetworkError(
            f"No network for {name} could be made in {self._addresses.whole}: "
            f"{refusal.explanation if isinstance(refusal, APIError) else 'all of it is in use'}. "
            "Set FARANDOLE_SUBNETS to a range of addresses that nothing else uses."
        ) from refusal

    def _specification(self, subnet: IPv4Network) -> dict[str, Any]:
        """Return what makes a network of these addresses one of our kind, for the engine's client."""
        options = {MTU_OPTION: str(self._mtu)}
        return {
            "driver": "bridge",
            "options": options if self._internet else {**options, NO_ADDRESS_OPTION: "true"},
            "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
        }

    def _endpoint(self, container: str, network: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - others need it
        """Return what a service has in a network, for the engine's client."""
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
                # A stopped container is connected and not listed.
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
        """Whether others than the services are in it."""
        return bool(_present(network) - set(self._services))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove a network in which nobody is any more."""
        self._client.remove_network(network["Id"])


def _present(network: dict[str, Any]) -> set[str]:
    """Return the names of the containers in a network; a swarm's has none where no container of this engine is."""
    return {container["Name"] for container in (network["Containers"] or {}).values()}


def reason(exc: Exception) -> str:
    """Return the words of one of `ENGINE_ERRORS`."""
    return str(getattr(exc, "explanation", None) or exc)
