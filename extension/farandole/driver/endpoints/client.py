"""Requests to the endpoints of a hub, and to the hub about them."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from farandole.driver.workers.addresses import open_session
from farandole.driver.workers.client import HubClient
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.starts import start_server
from farandole.driver.workers.worker import REQUEST_TIMEOUT, Progress
from farandole.exceptions import EndpointError, EndpointExistsError, EndpointNotFoundError, FarandoleError, HubError
from farandole.protocol import is_number
from farandole.reading import parse_json, printable

ENDPOINT_PREFIX = "serve-"
"""The beginning of the names of servers that are endpoints. It is equal to `spawner_config.roles.ENDPOINT_PREFIX`."""
STATUS_TIMEOUT = aiohttp.ClientTimeout(total=5)
SWITCH_TIMEOUT = aiohttp.ClientTimeout(total=600)
"""Loading a large model takes minutes."""
LONGEST_REASON = 500
"""The characters of a reason that are shown, in an endpoint's answer or in the status of its stream."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_figure(value: Any) -> bool:
    return is_number(value) and value >= 0


STATUS: dict[str, Callable[[Any], bool]] = {
    "model": _is_text,
    "version": _is_count,
    "requests_per_second": _is_figure,
    "errors": _is_count,
    "p95_ms": lambda value: value is None or _is_figure(value),
    # Endpoints of earlier versions do not send this key.
    "stream": lambda value: value is None or isinstance(value, dict),
}
"""The keys of the status that an endpoint sends, each with the function that checks its value."""
STREAM: dict[str, Callable[[Any], bool]] = {
    "source": _is_text,
    "target": _is_text,
    "lag": lambda value: value is None or _is_count(value),
    "records_per_second": _is_figure,
    "dead_letters": _is_count,
    "problem": _is_text,
}
"""The keys of the status of a stream, each with the function that checks its value."""


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """What is known of the stream that an endpoint scores.

    Attributes:
        source: where the records come from, such as ``nats:///calls``.
        target: where the results go, such as ``nats:///decisions.{label}``.
        lag: the records that wait in the source. None if it is not known.
        records_per_second: records that were scored in the last minute.
        dead_letters: records since the start of the endpoint that the model could not score.
        problem: why no record is scored at the moment, or an empty string.
    """

    source: str
    target: str
    lag: int | None = None
    records_per_second: float
    dead_letters: int
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class EndpointStatus:
    """What is known of an endpoint.

    Attributes:
        name: its name.
        url: its address for browsers and programs elsewhere.
        model: the name of its model, or an empty string if it runs a command or an image that does not answer.
        version: the version of its model, or 0 if it is not known.
        command: the words of its command, or none if it serves a model.
        image: the image that has its model, or an empty string.
        ready: whether it is running.
        requests_per_second: in the last minute.
        errors: requests of the last minute that were answered with an error.
        p95_ms: 95 % of the requests of the last minute took at most this many milliseconds. None without requests.
        stream: the stream that it scores. None if it scores none, does not answer or is of an earlier version.
    """

    name: str
    url: str
    model: str = ""
    version: int = 0
    command: tuple[str, ...] = ()
    image: str = ""
    ready: bool = False
    requests_per_second: float | None = None
    errors: int | None = None
    p95_ms: float | None = None
    stream: StreamStatus | None = None


def endpoints_among(servers: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return those of the hub's models of servers that are endpoints, by the name of the endpoint."""
    return {
        name.removeprefix(ENDPOINT_PREFIX): model
        for name, model in servers.items()
        if (model.get("user_options") or {}).get("role") == "endpoint"
    }


class EndpointClient:
    """The endpoints of the token's user. ``hub`` is closed by `close`."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub

    @classmethod
    async def connect(cls, hub_url: str | None, token: str | None) -> EndpointClient:
        """Connect as `Cluster` does. Raises NoClusterError if there is no hub, or no token for it."""
        session = open_session()
        try:
            return cls(HubWorkers.from_environment(hub_url, token, session).client)
        except BaseException:
            await session.close()
            raise

    async def close(self) -> None:
        """Close the connections."""
        await self._hub.session.close()

    async def servers(self) -> dict[str, dict[str, Any]]:
        """Return the hub's models of the endpoints that run, start or stop, by the name of the endpoint."""
        return endpoints_among(await self._hub.servers())

    async def start(self, name: str, options: dict[str, Any], *, progress: Progress, timeout: float) -> None:
        """Start an endpoint. If this fails, nothing of it is left.

        Raises:
            EndpointExistsError: another notebook has started an endpoint with this name at the same time. It stays.
            WorkerStartError, HubError: the start failed.
        """
        server, wanted = f"{ENDPOINT_PREFIX}{name}", {"role": "endpoint", **options}
        try:
            await start_server(self._hub, server, wanted, what=f"endpoint {name}", progress=progress, timeout=timeout)
        except BaseException as exc:
            if not _is_refusal(exc):
                await self._undo(name, wanted, progress)
            raise
        if await self._has_other_options(name, wanted):
            raise EndpointExistsError(
                f"another notebook has started the endpoint {name!r} at the same time; see `%serve list`, or choose "
                "another `--name`"
            )

    async def _undo(self, name: str, options: dict[str, Any], progress: Progress) -> None:
        """Stop the endpoint of a failed start. Errors are shown instead of raised, to keep the original error."""
        try:
            if not await self._has_other_options(name, options):
                await self._hub.stop_server(f"{ENDPOINT_PREFIX}{name}")
        except FarandoleError as exc:
            progress(f"endpoint {name} may still exist: {exc}")

    async def _has_other_options(self, name: str, options: dict[str, Any]) -> bool:
        """Return whether an endpoint has other options than these, because another notebook has started it.

        The hub accepts a request while the server is starting, and ignores its options.
        """
        found = (await self._hub.servers()).get(f"{ENDPOINT_PREFIX}{name}")
        return found is not None and found.get("user_options") != options

    async def stop(self, name: str) -> None:
        """Stop an endpoint, and wait for its end."""
        await self.server(name)
        await self._hub.stop_server(f"{ENDPOINT_PREFIX}{name}")

    async def status(self, name: str) -> EndpointStatus:
        """Return what is known of an endpoint, without its version and figures if it does not answer.

        Raises:
            EndpointNotFoundError: there is no endpoint with this name.
            EndpointError: its answer is not valid.
        """
        return await self._status(name, await self.server(name))

    async def statuses(self) -> list[EndpointStatus]:
        """Return what is known of all endpoints, in alphabetical order."""
        found = sorted((await self.servers()).items())
        return list(await asyncio.gather(*(self.status_of(name, server) for name, server in found)))

    async def switch(self, name: str, key: str) -> None:
        """Let an endpoint serve another version. Raises EndpointError if it refuses; it then serves the earlier one."""
        path = "farandole/version"
        _parsed(name, await self._request(name, "POST", path, json={"model": key}, timeout=SWITCH_TIMEOUT))

    async def metadata(self, name: str, model: str, server: dict[str, Any]) -> dict[str, Any]:
        """Return what an endpoint says of its model, given the hub's model of its server."""
        return _parsed(name, await self._request(name, "GET", f"v2/models/{model}", server=server))

    async def infer(
        self, name: str, model: str, request: dict[str, Any], server: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request of the Open Inference Protocol, and return the answer.

        Without the hub's model of its server, the hub is asked for it.
        """
        path = f"v2/models/{model}/infer"
        return _parsed(name, await self._request(name, "POST", path, server=server, json=request))

    async def token(self, name: str, days: float) -> str:
        """Return a new token that can only call this endpoint."""
        await self.server(name)
        return await self._hub.endpoint_token(f"{ENDPOINT_PREFIX}{name}", days)

    async def shares(self, name: str) -> list[str]:
        """Return the users with whom an endpoint is shared."""
        await self.server(name)
        return await self._hub.shares(f"{ENDPOINT_PREFIX}{name}")

    async def share(self, name: str, user: str, *, allowed: bool) -> None:
        """Allow or forbid another user to call an endpoint."""
        await self.server(name)
        await self._hub.share(f"{ENDPOINT_PREFIX}{name}", user, allowed=allowed)

    async def server(self, name: str) -> dict[str, Any]:
        """Return the hub's model of an endpoint's server. Raises EndpointNotFoundError if there is none."""
        servers = await self.servers()
        if name not in servers:
            running = f"running: {', '.join(sorted(servers))}" if servers else "none is running"
            raise EndpointNotFoundError(
                f"there is no endpoint {name!r}; {running}. Start one with `%serve MODEL:VERSION`."
            )
        return servers[name]

    async def status_of(self, name: str, server: dict[str, Any]) -> EndpointStatus:
        """Return what is known of an endpoint, given the hub's model of its server.

        Without a valid answer, the version and the figures are missing, so that one endpoint does not hide the others.
        """
        try:
            return await self._status(name, server)
        except EndpointError:
            return known(name, server)

    async def _status(self, name: str, server: dict[str, Any]) -> EndpointStatus:
        status = known(name, server)
        if not status.ready or status.command:
            return status
        try:
            body = await self._request(name, "GET", "farandole/status", server=server, timeout=STATUS_TIMEOUT)
        except EndpointError:
            return status
        return replace(status, **_figures(name, _parsed(name, body)))

    async def _request(
        self, name: str, method: str, path: str, *, server: dict[str, Any] | None = None, **options: Any
    ) -> bytes:
        """Send a request to an endpoint and return the body of its answer.

        Raises EndpointError if it is not ready, does not answer or refuses.
        """
        server = server or await self.server(name)
        if not server.get("ready"):
            raise EndpointError(f"the endpoint {name} is starting or stopping; see `%serve list`")
        address = self._hub.address.server(server["url"])
        headers = {**address.headers, "Authorization": f"token {self._hub.token}"}
        options.setdefault("timeout", REQUEST_TIMEOUT)
        try:
            # While an endpoint starts or ends, the hub may redirect to its own pages.
            async with self._hub.session.request(
                method, f"{address.url}{path}", headers=headers, allow_redirects=False, **options
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as exc:
            why = str(exc) or "no answer in time"
            raise EndpointError(
                f"the endpoint {name} does not answer ({why}). Try again, or see `%serve list`."
            ) from exc
        if answer.status >= 300:
            raise EndpointError(f"the endpoint {name} answered {answer.status}: {_reason(body) or answer.reason}")
        return body


def _is_refusal(exc: BaseException) -> bool:
    """Return whether the hub refused to start a server, for example because it is running already."""
    return isinstance(exc, HubError) and exc.status is not None and 400 <= exc.status < 500


def known(name: str, server: dict[str, Any]) -> EndpointStatus:
    """Return what the hub knows of an endpoint, from its model of the server.

    Only the endpoint itself knows the version once it is ready, because the hub does not notice a switch.
    """
    options, ready = server.get("user_options") or {}, bool(server.get("ready"))
    model, _, version = str(options.get("model", "")).partition(":")
    return EndpointStatus(
        name=name,
        url=server.get("full_url") or server["url"],
        model=model,
        version=0 if ready else int(version or 0),
        command=tuple(options.get("command", ())),
        image=str(options.get("model_image", "")),
        ready=ready,
    )


def _parsed(name: str, body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of an endpoint's answer. Raises EndpointError if there is none."""
    try:
        return parse_json(body, "its content")
    except ValueError as exc:
        raise invalid(name, f"answer: {printable(str(exc))}") from exc


def _figures(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values of the status that an endpoint has sent which `EndpointStatus` has.

    Raises EndpointError if one of them is missing or not valid.
    """
    figures = _checked(name, found, STATUS, "status")
    return {**figures, "stream": _stream(name, figures["stream"])}


def _stream(name: str, found: Mapping[str, Any] | None) -> StreamStatus | None:
    if found is None:
        return None
    values = _checked(name, found, STREAM, "status of its stream")
    return StreamStatus(**{**values, "problem": _shown(values["problem"])})


def _checked(
    name: str, found: Mapping[str, Any], checks: Mapping[str, Callable[[Any], bool]], what: str
) -> dict[str, Any]:
    """Return the values for the keys of ``checks``. Raises EndpointError if one of them is not valid."""
    for key, is_valid in checks.items():
        if not is_valid(found.get(key)):
            raise invalid(name, f"{what}: {key!r} is {printable(reprlib.repr(found.get(key)))}")
    return {key: found.get(key) for key in checks}


def invalid(name: str, why: str) -> EndpointError:
    """Return the error for an answer that is not valid."""
    return EndpointError(
        f"the endpoint {name} sent an invalid {why}. Try again; if the error remains, stop it with "
        f"`%serve stop {name}` and start it again."
    )


def _reason(body: bytes) -> str:
    """Return the reason in an answer with an error, or an empty string. A proxy may answer with a page."""
    try:
        found = parse_json(body, "")
    except ValueError:
        return ""
    said = found.get("error") or found.get("message")
    return _shown(said) if isinstance(said, str) else ""


def _shown(reason: str) -> str:
    """Return a reason on one line, without characters that are not printable, and only its beginning if it is long."""
    return printable(" ".join(reason.split()))[:LONGEST_REASON]
