"""The table of admitted requests; a request with any other method, path or query is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from hub.engine_filter.admission import Admission, Call, Outgoing
from hub.engine_filter.refused import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Decision = Callable[[Admission, Call], Awaitable[Outgoing]]

# Before version 1.30 of the engine's API, the list of networks revealed containers, and requests to start a container
# had a body.
VERSION = r"(?P<version>/v1\.(?:[3-9][0-9]|[1-9][0-9]{2}))?"
NAME = r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,254})"
PIECE = r"[A-Za-z0-9](?:[A-Za-z0-9_.:@-]|%40|%3A)*"
IMAGE = rf"(?P<image>{PIECE}(?:/{PIECE})*)"


@dataclass(frozen=True)
class Route:
    """One kind of request; ``path`` is a regular expression, and ``query`` lists the admitted parameters."""

    method: str
    path: str
    decide: Decision
    query: tuple[str, ...] = ()
    has_body: bool = False

    def match(self, method: str, path: str) -> re.Match[str] | None:
        """Return the match of the path if the request is of this kind, otherwise None."""
        return re.fullmatch(VERSION + self.path, path) if method == self.method else None


LOGS = ("stdout", "stderr", "follow", "since", "until", "timestamps", "tail")
ROUTES = (
    Route("GET", "/_ping", Admission.as_it_is),
    Route("HEAD", "/_ping", Admission.as_it_is),
    Route("GET", "/version", Admission.as_it_is),
    Route("GET", "/info", Admission.as_it_is),
    Route("GET", f"/images/{IMAGE}/json", Admission.inspect_image),
    Route("POST", "/images/create", Admission.pull_image, ("fromImage", "tag")),
    Route("GET", "/containers/json", Admission.list_ours, ("all", "limit", "size", "filters", "trunc_cmd")),
    Route("POST", "/containers/create", Admission.create_container, ("name",), has_body=True),
    Route("GET", f"/containers/{NAME}(?P<rest>/json)", Admission.container, ("size",)),
    Route("GET", f"/containers/{NAME}(?P<rest>/logs)", Admission.container, LOGS),
    Route("GET", f"/containers/{NAME}(?P<rest>/stats)", Admission.container, ("stream", "one-shot")),
    Route("POST", f"/containers/{NAME}(?P<rest>/start)", Admission.container),
    Route("POST", f"/containers/{NAME}(?P<rest>/stop)", Admission.container, ("t", "signal")),
    Route("POST", f"/containers/{NAME}(?P<rest>/kill)", Admission.container, ("signal",)),
    Route("POST", f"/containers/{NAME}(?P<rest>/wait)", Admission.container, ("condition",)),
    Route("DELETE", f"/containers/{NAME}(?P<rest>)", Admission.container, ("v", "force")),
    Route("GET", "/networks", Admission.as_it_is, ("filters",)),
    Route("POST", "/networks/create", Admission.create_network, has_body=True),
    Route("GET", f"/networks/{NAME}", Admission.inspect_network, ("verbose", "scope")),
    Route("DELETE", f"/networks/{NAME}", Admission.remove_network),
    Route("POST", f"/networks/{NAME}/connect", Admission.connect, has_body=True),
    Route("POST", f"/networks/{NAME}/disconnect", Admission.disconnect, has_body=True),
    Route("POST", "/volumes/create", Admission.create_volume, has_body=True),
    Route("GET", f"/volumes/{NAME}", Admission.inspect_volume),
    Route("GET", "/nodes", Admission.nodes),
    Route("POST", f"/nodes/{NAME}/update", Admission.update_node, ("version",), has_body=True),
    Route("GET", "/services", Admission.list_ours, ("filters", "status")),
    Route("POST", "/services/create", Admission.create_service, has_body=True),
    Route("GET", f"/services/{NAME}", Admission.service, ("insertDefaults",)),
    Route("DELETE", f"/services/{NAME}", Admission.service),
    Route("GET", "/tasks", Admission.list_ours, ("filters",)),
)
HARMLESS = {"", "0", "false"}
# Words that a route's pattern would accept as a name, but that are commands of the engine's API.
WORDS = {"create", "json", "prune"}


def find(method: str, target: str, body: bytes) -> tuple[Route, str, Call]:
    """Return the route of a request, the version prefix of its path, and the parsed request.

    ``target`` is the path and query as the client sent them. Raises `RefusedError`.
    """
    path, _, query = target.partition("?")
    for route in ROUTES:
        if (match := route.match(method, path)) and match.groupdict().get("name") not in WORDS:
            if body and not route.has_body:
                raise RefusedError(f"{method} {path} may not have a body.")
            version = match["version"] or ""
            call = Call(path=path.removeprefix(version), parts=match.groupdict(), query=_query(route, query), body=body)
            return route, version, call
    raise RefusedError(f"{method} {path} is not among the requests that the hub's spawner needs.")


def _query(route: Route, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), encoding="utf-8", errors="strict")
    except ValueError as exc:
        raise RefusedError(f"The query cannot be read: {exc}.") from exc
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RefusedError("A parameter of the query occurs twice.")
    for key in found.keys() - set(route.query):
        # Clients also send parameters that they do not use, with empty or false values. These are dropped.
        if found.pop(key).lower() not in HARMLESS:
            raise RefusedError(f"The parameter {key!r} is not admitted here.")
    return found
