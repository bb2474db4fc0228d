"""Reports to the hub when an endpoint last answered a request, because the hub stops servers that are idle too long."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tornado.httpclient import AsyncHTTPClient, HTTPClientError

DEFAULT_INTERVAL = 60.0
_log = logging.getLogger(__name__)


async def report_activity(environment: Mapping[str, str], last_request: Callable[[], float]) -> None:
    """Report the time of the last request, in seconds since the epoch, at the hub's interval until this is cancelled.

    ``environment`` has the variables that the hub sets for its servers. Without them, there is no hub.
    """
    if "JUPYTERHUB_ACTIVITY_URL" not in environment:
        return
    interval = float(environment.get("JUPYTERHUB_ACTIVITY_INTERVAL") or DEFAULT_INTERVAL)
    reported = 0.0
    while True:
        last = last_request()
        # A report that is repeated tells the hub nothing.
        if last > reported and await _send(environment, last):
            reported = last
        await asyncio.sleep(interval)


async def _send(environment: Mapping[str, str], last: float) -> bool:
    name, used = environment["JUPYTERHUB_SERVER_NAME"], datetime.fromtimestamp(last, UTC).isoformat()
    try:
        await AsyncHTTPClient().fetch(
            environment["JUPYTERHUB_ACTIVITY_URL"],
            method="POST",
            headers={"Authorization": f"token {environment['JUPYTERHUB_API_TOKEN']}"},
            body=json.dumps({"servers": {name: {"last_activity": used}}, "last_activity": used}),
        )
    except (HTTPClientError, OSError) as exc:
        _log.warning("The hub did not accept the report of the last request: %s", exc)
        return False
    return True
