"""The HTTP server, which decides on every request and streams the engine's answer to the client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web

from hub.engine_filter.admission import Admission
from hub.engine_filter.engine import Engine, EngineError
from hub.engine_filter.refused import RefusedError
from hub.engine_filter.routes import find

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse

    from hub.engine_filter.rules import Rules

LARGEST_BODY = 1 << 20
CONNECT_SECONDS = 5
PASSED_ON = ("Content-Type", "Api-Version", "Docker-Experimental", "Ostype")
# This header holds the client's credentials for a registry. All other headers from the client are dropped.
LOGIN = "X-Registry-Auth"
RULES: web.AppKey[Rules] = web.AppKey("rules")
ENGINE: web.AppKey[Engine] = web.AppKey("engine")

log = logging.getLogger("farandole.engine")


def make_app(rules: Rules, socket: str) -> web.Application:
    """Return the filter's web application; ``socket`` is the path of the engine's socket."""

    async def engine(app: web.Application) -> AsyncIterator[None]:
        # Limit neither the number nor the duration of connections, because requests that follow logs stay open.
        connector = UnixConnector(socket, limit=0)
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            app[ENGINE] = Engine(session)
            yield

    app = web.Application(client_max_size=LARGEST_BODY)
    app[RULES] = rules
    app.cleanup_ctx.append(engine)
    app.router.add_route("*", "/{anything:.*}", handle)
    return app


async def handle(request: web.Request) -> web.StreamResponse:
    """Respond to a request with the engine's answer, or with the reason for the refusal."""
    try:
        answer = await _send(request)
    except RefusedError as refusal:
        log.warning("refused %s %s: %s", request.method, request.raw_path, refusal)
        return _error(refusal.status, str(refusal))
    except EngineError as error:
        return web.Response(status=error.status, body=error.body, content_type="application/json")
    except ClientError as exc:
        log.error("the engine does not answer: %s", exc)
        return _error(502, f"The engine does not answer the filter: {exc}.")
    async with answer:
        return await _pass_on(request, answer)


async def _send(request: web.Request) -> ClientResponse:
    if "Upgrade" in request.headers or request.method == "CONNECT":
        raise RefusedError(
            "A connection may not be upgraded, because this would give access to the inside of a container."
        )
    route, version, call = find(request.method, request.raw_path, await _body(request))
    engine = request.app[ENGINE]
    outgoing = await route.decide(Admission(request.app[RULES], engine), call)
    headers = {LOGIN: request.headers[LOGIN]} if LOGIN in request.headers else {}
    return await engine.send(request.method, version + outgoing.path, outgoing.query, outgoing.body, headers)


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as exc:
        raise RefusedError(f"The body is larger than {LARGEST_BODY} bytes.", status=413) from exc


async def _pass_on(request: web.Request, answer: ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    if answer.content_length is not None and request.method != "HEAD":
        response.content_length = answer.content_length
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


def _error(status: int, sentence: str) -> web.Response:
    # Use the format of the engine's own errors, so that clients show the message.
    return web.json_response({"message": f"Farandole's engine filter: {sentence}"}, status=status)
