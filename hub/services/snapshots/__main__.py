"""`python -m hub.services.snapshots ADDRESS`: serve users' snapshots at this address, as a service of the hub."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.log import enable_pretty_logging
from tornado.web import Application

from hub.services.snapshots.access import SECONDS, Access
from hub.services.snapshots.handlers import Service
from hub.services.snapshots.mirrors.folders import Mirrors
from hub.services.snapshots.mirrors.mirror import Mirror
from hub.services.snapshots.pruning import Pruner
from hub.services.snapshots.retention import HOUR, Retention
from hub.services.snapshots.routes import routes
from hub.services.snapshots.store import Store
from spawner_config.lifecycle.folder_lock import InUseError, lock_folder
from spawner_config.snapshots.mirrors import MIRROR_SCOPE, MirrorSettings
from spawner_config.snapshots.settings import ACCESS, SnapshotSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hub.services.snapshots.access import TokenCheck

LARGEST_BODY = 64 << 10
"""The limit on the bodies of requests, except those with files."""
REQUEST_SECONDS = 3600.0
"""The longest time in which a file arrives. Otherwise, a client that is gone could keep a repository from pruning."""
QUIET = ("tornado.access", "alembic")
"""The loggers that would write several lines for each snapshot into the hub's log, or some for their own start."""


async def main(bind: str, environ: Mapping[str, str]) -> None:
    """Serve requests, and prune and mirror each hour, until the hub ends this process."""
    enable_pretty_logging()
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    settings = SnapshotSettings.from_environment(environ)
    store = Store(Path(environ["FARANDOLE_STATE"]), settings.limit)
    try:
        # A second service would count bytes, and keep users out of a pruned repository, for itself only.
        lock_folder(store.own)
    except InUseError as exc:
        sys.exit(str(exc))
    store.start()
    auth = partial(token_check, environ["JUPYTERHUB_API_URL"], environ["JUPYTERHUB_API_TOKEN"])
    service = Service(
        store=store,
        access=Access(auth, ACCESS),
        mirrors=Mirrors(store.folder),
        mirror_access=Access(auth, MIRROR_SCOPE, MirrorSettings.from_environment(environ).accounts),
        prefix=environ["JUPYTERHUB_SERVICE_PREFIX"],
    )
    port = urlsplit(environ["JUPYTERHUB_SERVICE_URL"]).port
    assert port is not None
    server_of(service).listen(port, bind)
    pruner, mirror = Pruner(store, retention(settings)), Mirror.from_environment(store, environ)
    while True:
        if mirror is not None:
            await mirror.run_if_due()
        await asyncio.sleep(HOUR)
        await pruner.prune_all()


def server_of(service: Service, seconds: float = REQUEST_SECONDS) -> HTTPServer:
    """Return a server that ends requests whose content has not arrived after so many seconds."""
    return HTTPServer(Application(routes(service)), xheaders=True, max_body_size=LARGEST_BODY, body_timeout=seconds)


def token_check(url: str, token: str) -> TokenCheck:
    """Return a client of the hub at ``url`` that checks tokens."""
    # The hub waits for this process when it starts, and this import takes a second.
    from jupyterhub.services.auth import HubAuth

    auth: TokenCheck = HubAuth(api_url=url, api_token=token, cache_max_age=SECONDS)
    return auth


def retention(settings: SnapshotSettings) -> Retention:
    """Return how long snapshots are kept."""
    return Retention(
        hours=settings.snapshots_hours, days=settings.snapshots_days, message_days=settings.snapshots_message_days
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ))
