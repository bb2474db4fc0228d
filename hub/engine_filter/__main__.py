"""`python -m hub.engine_filter`: serve the engine filter on port FARANDOLE_ENGINE_PORT.

The filter forwards admitted requests to the engine's socket, FARANDOLE_ENGINE_SOCKET.
"""

from __future__ import annotations

import logging
import os

from aiohttp import web

from hub.engine_filter.rules import Rules
from hub.engine_filter.serve import make_app

PORT = "2375"
SOCKET = "/var/run/docker.sock"
SHUTDOWN_SECONDS = 2.0


def main() -> None:
    """Run the filter until the process is stopped."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    web.run_app(
        make_app(Rules.from_environment(os.environ), os.environ.get("FARANDOLE_ENGINE_SOCKET") or SOCKET),
        host=os.environ.get("FARANDOLE_ENGINE_HOST") or None,
        port=int(os.environ.get("FARANDOLE_ENGINE_PORT") or PORT),
        # If a client disconnects, cancel its request, because a request that follows logs would otherwise never end.
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_SECONDS,
        access_log=None,
    )


if __name__ == "__main__":
    main()
