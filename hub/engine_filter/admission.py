"""Decides on each request: refuses the request, or returns the request to send to the engine instead.

The filter first looks up each object that a request names. The request for the engine then refers to the object by its
id, so that no other object can take the name in between. Networks in a container's body keep their names, because the
engine lists a container's networks by name. These names come from the engine's answer, and none of the hub's names can
be mistaken for an id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from hub.engine_filter.body import read_object, texts
from hub.engine_filter.containers import NO_NETWORK, rebuild_container
from hub.engine_filter.engine import EngineError
from hub.engine_filter.names import NAME
from hub.engine_filter.networks import rebuild_connect, rebuild_disconnect, rebuild_network, rebuild_volume
from hub.engine_filter.refused import RefusedError
from hub.engine_filter.rules import Rules, is_service
from hub.engine_filter.services import rebuild_node, rebuild_service
from spawner_config.labels import HUB_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hub.engine_filter.engine import Engine

NOT_FOUND = 404


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request whose method, path and query are admitted; ``parts`` are the named groups of the route's pattern."""

    path: str
    parts: Mapping[str, str]
    query: dict[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """The request that the filter sends to the engine."""

    path: str
    query: dict[str, str]
    body: dict[str, Any] | None = None


class Admission:
    """Checks requests against the rules.

    Each method handles one kind of request. It returns the request for the engine, or raises `RefusedError`.
    """

    def __init__(self, rules: Rules, engine: Engine) -> None:
        self._rules = rules
        self._engine = engine

    async def as_it_is(self, call: Call) -> Outgoing:
        """Admit a request without changes, because its answer reveals nothing about containers."""
        return Outgoing(path=call.path, query=call.query)

    async def inspect_image(self, call: Call) -> Outgoing:
        """Admit a request to inspect an allowed image."""
        self._rules.check_image(unquote(call.parts["image"]))
        return Outgoing(path=call.path, query={})

    async def pull_image(self, call: Call) -> Outgoing:
        """Admit a request to pull one tag of an allowed image."""
        image, tag = call.query.get("fromImage", ""), call.query.get("tag", "")
        if not tag:
            raise RefusedError("A pull without a tag is not admitted, because it would fetch all tags.")
        self._rules.check_image(f"{image}@{tag}" if tag.startswith("sha256:") else f"{image}:{tag}")
        return Outgoing(path=call.path, query=call.query)

    async def list_ours(self, call: Call) -> Outgoing:
        """Admit a request to list containers, services or tasks, and restrict the list to the hub's own."""
        filters = read_object(call.query.get("filters", "{}").encode())
        # When the engine filters a swarm's objects, it uses only one value for each label. Remove the client's value
        # for the hub label, so that the engine uses the value that is added here.
        asked = texts("filters.label", filters.get("label") or [])
        wanted = [label for label in asked if label.partition("=")[0] != HUB_LABEL]
        filters["label"] = [*wanted, f"{HUB_LABEL}={self._rules.name}"]
        return Outgoing(path=call.path, query={**call.query, "filters": json.dumps(filters)})

    async def create_container(self, call: Call) -> Outgoing:
        """Admit an unprivileged container that has an allowed image and uses only the hub's networks and volumes."""
        body = rebuild_container(self._rules, read_object(call.body))
        if not body.get("User"):
            await self._check_image_user(body["Image"])
        for mount in body["HostConfig"]["Mounts"]:
            await self._check_volume(mount["Source"])
        await self._check_networks(body)
        return Outgoing(path=call.path, query=call.query, body=body)

    async def nodes(self, call: Call) -> Outgoing:
        """Admit a request to list the nodes of the swarm."""
        self._check_swarm()
        return Outgoing(path=call.path, query={})

    async def update_node(self, call: Call) -> Outgoing:
        """Admit a request that changes which data sets a node has, according to its labels, and nothing else."""
        self._check_swarm()
        found = await self._engine.inspect(f"/nodes/{_name(call.parts['name'])}")
        body = rebuild_node(found["Spec"], read_object(call.body))
        return Outgoing(path=f"/nodes/{found['ID']}/update", query=call.query, body=body)

    async def create_service(self, call: Call) -> Outgoing:
        """Admit an unprivileged service that has an allowed image and uses only the hub's networks and volumes."""
        self._check_swarm()
        body = rebuild_service(self._rules, read_object(call.body))
        task = body["TaskTemplate"]
        if not task["ContainerSpec"].get("User"):
            await self._check_image_user(task["ContainerSpec"]["Image"])
        for mount in task["ContainerSpec"]["Mounts"]:
            if "Source" in mount:
                await self._check_volume(mount["Source"])
        network = await self._users_network(task["Networks"][0]["Target"])
        task["Networks"] = [{"Target": network["Id"]}]
        return Outgoing(path=call.path, query={}, body=body)

    async def service(self, call: Call) -> Outgoing:
        """Admit a request about one of the hub's services."""
        self._check_swarm()
        found = await self._ours("service", call.parts["name"], f"/services/{_name(call.parts['name'])}")
        return Outgoing(path=f"/services/{found['ID']}", query={})

    async def container(self, call: Call) -> Outgoing:
        """Admit a request about one of the hub's containers, except the containers of the hub's own services."""
        found = await self._container(call.parts["name"])
        if is_service(found["Config"]["Labels"]):
            raise RefusedError(
                f"The container {call.parts['name']!r} is one of the hub's own services, which the hub may not change."
            )
        return Outgoing(path=f"/containers/{found['Id']}{call.parts['rest'] or ''}", query=call.query)

    async def create_network(self, call: Call) -> Outgoing:
        """Admit a request to create a network that belongs to the hub."""
        return Outgoing(path=call.path, query={}, body=rebuild_network(self._rules, read_object(call.body)))

    async def inspect_network(self, call: Call) -> Outgoing:
        """Admit a request to inspect one of the hub's networks."""
        found = await self._network(call.parts["name"])
        return Outgoing(path=f"/networks/{found['Id']}", query=call.query)

    async def remove_network(self, call: Call) -> Outgoing:
        """Admit a request to remove one of the hub's networks, except the networks of the hub's own services."""
        found = await self._users_network(call.parts["name"])
        return Outgoing(path=f"/networks/{found['Id']}", query={})

    async def connect(self, call: Call) -> Outgoing:
        """Admit a request to connect a container of the hub, or one of the hub's own services, to a user's network."""
        return await self._join(call, "connect", rebuild_connect(self._rules, read_object(call.body)))

    async def disconnect(self, call: Call) -> Outgoing:
        """Admit a request to disconnect a container from a network, under the same conditions as `connect`."""
        return await self._join(call, "disconnect", rebuild_disconnect(read_object(call.body)))

    async def create_volume(self, call: Call) -> Outgoing:
        """Admit a request to create a volume that belongs to the hub."""
        body = rebuild_volume(self._rules, read_object(call.body))
        await self._check_volume(body["Name"])
        return Outgoing(path=call.path, query={}, body=body)

    async def inspect_volume(self, call: Call) -> Outgoing:
        """Admit a request to inspect a volume of the hub, or a volume that is shared with all users."""
        await self._check_volume(call.parts["name"])
        return Outgoing(path=call.path, query={})

    async def _join(self, call: Call, verb: str, body: dict[str, Any]) -> Outgoing:
        network = await self._users_network(call.parts["name"])
        container = await self._container(body.get("Container", ""))
        body["Container"] = container["Id"]
        return Outgoing(path=f"/networks/{network['Id']}/{verb}", query={}, body=body)

    async def _container(self, name: str) -> dict[str, Any]:
        return await self._ours("container", name, f"/containers/{_name(name)}/json")

    async def _network(self, name: str) -> dict[str, Any]:
        return await self._ours("network", name, f"/networks/{_name(name)}")

    async def _users_network(self, name: str) -> dict[str, Any]:
        """Return the engine's description of a network; raise RefusedError if users' containers may not join it."""
        found = await self._network(name)
        if is_service(found["Labels"]):
            raise RefusedError(f"The network {name!r} is only for the hub's own services.")
        return found

    async def _ours(self, kind: str, name: str, path: str) -> dict[str, Any]:
        """Return the engine's description of an object; raise RefusedError unless the object belongs to this hub."""
        found = await self._engine.inspect(path)
        where = {"container": "Config", "service": "Spec"}
        labels = (found[where[kind]] if kind in where else found)["Labels"]
        if not self._rules.owns(labels):
            raise RefusedError(
                f"The {kind} {name!r} does not belong to this hub: it lacks the label {HUB_LABEL}={self._rules.name}."
            )
        return found

    async def _check_networks(self, body: dict[str, Any]) -> None:
        host = body["HostConfig"]
        if not host.get("NetworkMode"):
            raise RefusedError("HostConfig.NetworkMode is missing. It must be a network of this hub or 'none'.")
        if host["NetworkMode"] != NO_NETWORK:
            host["NetworkMode"] = (await self._users_network(host["NetworkMode"]))["Name"]
        networking = body.get("NetworkingConfig", {})
        endpoints = networking.get("EndpointsConfig", {})
        if endpoints:
            networking["EndpointsConfig"] = {
                (await self._users_network(name))["Name"]: endpoint for name, endpoint in endpoints.items()
            }

    async def _check_volume(self, name: str) -> None:
        """Raise RefusedError if users' servers may not mount this volume."""
        if self._rules.shares_volume(name):
            return
        try:
            found = await self._ours("volume", name, f"/volumes/{_name(name)}")
        except EngineError as answer:
            # The volume does not exist yet. The engine will create it with the hub's label.
            if answer.status != NOT_FOUND:
                raise
            return
        if is_service(found["Labels"]):
            raise RefusedError(f"The volume {name!r} is only for the hub's own services.")

    def _check_swarm(self) -> None:
        """Raise RefusedError if the hub does not run on a swarm, because only a swarm has nodes and services."""
        if not self._rules.swarm:
            raise RefusedError("FARANDOLE_DEPLOYMENT is not swarm, so the hub has no services.")

    async def _check_image_user(self, image: str) -> None:
        """Raise RefusedError if the image's default user is root."""
        found = await self._engine.inspect(f"/images/{image}/json")
        name = (found["Config"].get("User") or "root").partition(":")[0]
        if name == "root" or not name.strip("+-0"):
            raise RefusedError(f"The image {image!r} runs as root: set another User, or use an image that sets one.")


def _name(text: str) -> str:
    """Return ``text`` if it is a name or an id; raise RefusedError otherwise."""
    if not NAME.fullmatch(text):
        raise RefusedError(f"{text!r} is neither a name nor an id.")
    return text
