"""The web application of an endpoint: KServe's routes of the Open Inference Protocol, and those of its owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from kserve import ModelRepository
from kserve.errors import InvalidInput, ModelNotFound
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer
from kserve.protocol.rest.v2_datamodels import InferenceRequest
from kserve.protocol.rest.v2_endpoints import V2Endpoints
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from timing_asgi import TimingMiddleware

from farandole.exceptions import FarandoleError
from farandole.models.store import ModelStore
from farandole.serving.batching import OverloadedError
from farandole.serving.dataplane import CheckedDataPlane
from farandole.serving.endpoint import EndpointModel
from farandole.serving.requests import InvalidInputError

APPLICATION = "kserve.model_server:app"
MANAGEMENT = "/farandole/"
"""The beginning of the paths that only the owner of an endpoint may use."""
VERSIONS = "/v2/models/{model_name}/versions/{model_version}"


def create_app(model: EndpointModel, store: ModelStore, statistics: Callable[[], dict[str, Any]]) -> FastAPI:
    """Return the application, without login and limits."""
    from kserve.model_server import app

    models = ModelRepository()
    models.update(model)
    data_plane = CheckedDataPlane(models)
    application: FastAPI = app
    # FastAPI would redirect to paths without the endpoint's prefix, which are the hub's.
    application.router.redirect_slashes = False
    # These routes must come before KServe's routes with the same paths.
    _add_versions(application, model, V2Endpoints(data_plane))
    # KServe's own server listens on all addresses and knows no prefix, so only its routes are used.
    RESTServer(APPLICATION, data_plane, _FixedModels(models), http_port=0).create_application()
    # This middleware looks for the route of each request a second time, and only logs durations.
    application.user_middleware = [one for one in application.user_middleware if one.cls is not TimingMiddleware]
    application.add_api_route(f"{MANAGEMENT}status", _status(model, statistics), methods=["GET"])
    application.add_api_route(f"{MANAGEMENT}version", _switch(model, store), methods=["POST"])
    # KServe's handlers log a traceback for each wrong request.
    application.add_exception_handler(InvalidInput, _wrong_input)
    application.add_exception_handler(InvalidInputError, _wrong_input)
    application.add_exception_handler(ModelNotFound, _unknown_model)
    application.add_exception_handler(RequestValidationError, _invalid)
    application.add_exception_handler(HTTPException, _http_error)
    application.add_exception_handler(FarandoleError, _refused)
    application.add_exception_handler(OverloadedError, _overloaded)
    return application


class _FixedModels(ModelRepositoryExtension):  # type: ignore[misc]
    """Refuses to load and unload models, which callers could otherwise request."""

    async def load(self, model_name: str) -> None:
        raise HTTPException(
            HTTPStatus.FORBIDDEN, f"the owner of this endpoint switches versions: %serve {model_name}:2"
        )

    unload = load


def _add_versions(application: FastAPI, model: EndpointModel, endpoints: V2Endpoints) -> None:
    """Add the routes whose paths have a version, to which KServe answers 501."""

    def check(version: str) -> None:
        if version != str(model.info.version):
            raise HTTPException(
                HTTPStatus.NOT_FOUND,
                f"this endpoint serves version {model.info.version} of {model.name}, and not {version}; use the path "
                f"v2/models/{model.name}, or let the owner switch with `%serve {model.info.name}:VERSION`",
            )

    async def metadata(model_name: str, model_version: str) -> Any:
        check(model_version)
        return await endpoints.model_metadata(model_name)

    async def ready(model_name: str, model_version: str) -> Any:
        check(model_version)
        return await endpoints.model_ready(model_name)

    async def infer(
        request: Request, response: Response, model_name: str, model_version: str, body: InferenceRequest | bytes
    ) -> Any:
        # KServe waits for nothing before it calls `predict`, so the checked version answers.
        check(model_version)
        return await endpoints.infer(request, response, model_name, body)

    application.add_api_route(VERSIONS, metadata, methods=["GET"])
    application.add_api_route(f"{VERSIONS}/ready", ready, methods=["GET"])
    application.add_api_route(f"{VERSIONS}/infer", infer, methods=["POST"])


def _status(model: EndpointModel, statistics: Callable[[], dict[str, Any]]) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def status() -> dict[str, Any]:
        return {"model": str(model.info.name), "version": model.info.version, **statistics()}

    return status


def _switch(model: EndpointModel, store: ModelStore) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    async def switch(request: Request) -> dict[str, Any]:
        try:
            wanted = await request.json()
        except ValueError:
            wanted = None
        if not isinstance(wanted, dict) or not isinstance(wanted.get("model"), str):
            raise HTTPException(HTTPStatus.BAD_REQUEST, 'send {"model": "NAME:VERSION"}')
        info = await model.switch(wanted["model"], store)
        return {"model": str(info.name), "version": info.version}

    return switch


def _answer(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


async def _invalid(_request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    first = exc.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return _answer(
        HTTPStatus.BAD_REQUEST, f"this is not a request of the Open Inference Protocol: {place}: {first['msg']}"
    )


async def _wrong_input(_request: Request, exc: Exception) -> JSONResponse:
    return _answer(HTTPStatus.BAD_REQUEST, str(exc))


async def _unknown_model(_request: Request, exc: Exception) -> JSONResponse:
    return _answer(HTTPStatus.NOT_FOUND, str(exc))


async def _http_error(_request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    return _answer(exc.status_code, exc.detail)


async def _refused(_request: Request, exc: Exception) -> JSONResponse:
    return _answer(HTTPStatus.CONFLICT, str(exc))


async def _overloaded(_request: Request, exc: Exception) -> JSONResponse:
    return _answer(HTTPStatus.SERVICE_UNAVAILABLE, str(exc))
