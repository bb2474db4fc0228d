"""Asks the hub's snapshot service for the user's repository."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from farandole.exceptions import SnapshotError
from farandole.reading import parse_json, printable

OPEN = "services/snapshots/open"
MOST_BYTES = 2**16
"""The largest answer that is read."""
TIMEOUT = 30.0
"""Seconds. The service creates the repository with the first request."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository of restic. Nobody should see its attributes: the URL contains the user's token.

    Attributes:
        url: a folder, or ``rest:http://USER:TOKEN@HOST/PATH/``.
        password: the password of the user's key.
        proxy: the address of the HTTP proxy to which restic sends its requests, or an empty string.
    """

    url: str = field(repr=False)
    password: str = field(repr=False)
    proxy: str = ""


class _NoRedirects(HTTPRedirectHandler):
    """Turns redirections into errors. A hub without the service redirects, and the token is for this hub only."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        return None


def open_repository(environ: Mapping[str, str] = os.environ) -> Repository:
    """Return the user's repository at the hub, which is created if there is none.

    Raises `SnapshotError` if the hub has no snapshots, refuses the request or does not answer.
    """
    hub, token = environ.get("FARANDOLE_HUB_URL", ""), environ.get("JUPYTERHUB_API_TOKEN", "")
    if not hub or not token:
        raise SnapshotError(
            "Snapshots are at a hub, and this process does not belong to a server of one. Use a notebook on the hub."
        )
    # The hub may route requests by the host that browsers use, which this process may be unable to reach.
    public = urlsplit(environ.get("JUPYTERHUB_HOST", "")).netloc
    headers = {"Authorization": f"token {token}", **({"Host": public} if public else {})}
    request = Request(f"{hub.rstrip('/')}/{OPEN}", data=b"", headers=headers, method="POST")
    login = f"{quote(environ.get('JUPYTERHUB_USER', ''), safe='')}:{quote(token, safe='')}"
    try:
        with build_opener(ProxyHandler({}), _NoRedirects).open(request, timeout=TIMEOUT) as answer:
            return _repository(answer, hub, public, login)
    except HTTPError as exc:
        with exc:
            raise _refusal(exc) from exc
    except (HTTPException, OSError) as exc:
        why = exc.reason if isinstance(exc, URLError) else exc
        raise SnapshotError(f"The hub does not answer ({why}); it may be restarting. Try again in a minute.") from exc


def _repository(answer: HTTPResponse, hub: str, public: str, login: str) -> Repository:
    """Return the repository that the service's answer names, with the token as Basic authorization in its URL."""
    try:
        found = parse_json(answer.read(MOST_BYTES), "the answer")
        path, password = urlsplit(str(found["repository"]).removeprefix("rest:")).path, str(found["password"])
    except (ValueError, KeyError) as exc:
        raise SnapshotError(
            f"The hub's snapshot service sent an invalid answer ({exc}). Ask the hub's administrator."
        ) from exc
    # Only the path is taken from the answer, so that the token is sent to the hub and nowhere else.
    own, path = urlsplit(hub), path.lstrip("/")
    if public in {"", own.netloc}:
        return Repository(url=f"rest:{own.scheme}://{login}@{own.netloc}/{path}", password=password)
    # restic cannot send another `Host` than that of the URL, so the hub's address is its HTTP proxy. With https in the
    # URL it would ask for a tunnel, which the hub does not offer; the connection to the hub is as the hub has it.
    url = f"rest:http://{login}@{public}/{path}"
    return Repository(url=url, password=password, proxy=f"{own.scheme}://{own.netloc}")


def _refusal(refused: HTTPError) -> SnapshotError:
    """Return the error for a request that the hub refused."""
    try:
        reason = printable(str(json.loads(refused.read(MOST_BYTES))["message"]))
    except (ValueError, KeyError, TypeError):
        reason = ""
    if refused.code in {401, 403}:
        return SnapshotError(
            f"The hub does not let this server use snapshots ({refused.code} {reason or refused.reason}). Restart your "
            "notebook server; if this remains, ask the hub's administrator."
        )
    if refused.code < 500 and not reason:
        return SnapshotError("This hub has no snapshots. Ask its administrator to enable them (FARANDOLE_SNAPSHOTS).")
    return SnapshotError(
        f"The hub's snapshot service did not open your repository: {reason or refused.reason}. Try again in a few "
        "minutes; if this remains, ask the hub's administrator."
    )
