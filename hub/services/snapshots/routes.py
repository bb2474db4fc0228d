"""The paths of the service, and their handlers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hub.services.snapshots.handlers import ConfigHandler, ListHandler, OpenHandler, RepositoryHandler
from hub.services.snapshots.mirrors.received import (
    MirrorConfigHandler,
    MirrorListHandler,
    MirrorObjectHandler,
    MirrorRepositoryHandler,
)
from hub.services.snapshots.objects import ObjectHandler
from hub.services.snapshots.repository import KINDS

if TYPE_CHECKING:
    from tornado.web import RequestHandler

    from hub.services.snapshots.handlers import Service


def routes(service: Service) -> list[tuple[str, type[RequestHandler], dict[str, Any]]]:
    """Return the rules of the service."""
    repository = f"{re.escape(service.prefix)}repositories/([^/]+)/"
    mirror = f"{re.escape(service.prefix)}mirrors/([^/]+)/"
    kinds = "|".join(KINDS)
    rules: list[tuple[str, type[RequestHandler]]] = [
        (f"{re.escape(service.prefix)}open", OpenHandler),
        (repository, RepositoryHandler),
        (f"{repository}config", ConfigHandler),
        (f"{repository}({kinds})/", ListHandler),
        (f"{repository}({kinds})/([^/]+)", ObjectHandler),
        (mirror, MirrorRepositoryHandler),
        (f"{mirror}config", MirrorConfigHandler),
        (f"{mirror}({kinds})/", MirrorListHandler),
        (f"{mirror}({kinds})/([^/]+)", MirrorObjectHandler),
    ]
    return [(path, handler, {"service": service}) for path, handler in rules]
