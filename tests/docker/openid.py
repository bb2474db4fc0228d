"""A stand-in OpenID provider, which logs in the user that a test chooses.

It checks requests as RFC 6749 (OAuth 2.0) and RFC 7636 (PKCE) require.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAIM = "preferred_username"
Answer = tuple[int, dict[str, Any]]
"""The HTTP status and the JSON content of a response."""


@dataclass
class Provider:
    """A provider at ``url`` for a single client, whose URL ``callback`` receives the browser after a login.

    ``claims`` are the claims of the next user who logs in. If ``denies`` is set, the next login fails with this error
    message. ``broken`` maps paths to the HTTP status that they return instead of the usual one.
    """

    url: str
    callback: str
    client_id: str = "farandole-test"
    client_secret: str = field(default_factory=lambda: secrets.token_hex(16))
    claims: dict[str, str] = field(default_factory=dict)
    denies: str | None = None
    broken: dict[str, int] = field(default_factory=dict)
    challenges: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)

    def settings(self) -> dict[str, str]:
        """Return the settings that an operator would write to .env."""
        return {
            "FARANDOLE_LOGIN": "generic",
            "FARANDOLE_OAUTH_CLIENT_ID": self.client_id,
            "FARANDOLE_OAUTH_CLIENT_SECRET": self.client_secret,
            "FARANDOLE_OAUTH_CALLBACK_URL": self.callback,
            "FARANDOLE_OAUTH_AUTHORIZE_URL": f"{self.url}/authorize",
            "FARANDOLE_OAUTH_TOKEN_URL": f"{self.url}/token",
            "FARANDOLE_OAUTH_USERDATA_URL": f"{self.url}/userinfo",
            "FARANDOLE_OAUTH_USERNAME_CLAIM": CLAIM,
        }

    def authorize(self, query: dict[str, str]) -> str | None:
        """Return the URL to which the login page redirects the browser, or None if the request is invalid."""
        wanted = {"response_type": "code", "client_id": self.client_id, "redirect_uri": self.callback}
        if not wanted.items() <= query.items() or "openid" not in query["scope"].split():
            return None
        if self.denies:
            back = {"error": "access_denied", "error_description": self.denies}
        else:
            back = {"code": secrets.token_hex(8)}
            self.challenges[back["code"]] = query["code_challenge"]
        return f"{self.callback}?{urlencode({**back, 'state': query['state']})}"

    def token(self, form: dict[str, str]) -> Answer:
        """Exchange a code for a token. Each code works once, and only for the client that requested it."""
        wanted = {"client_id": self.client_id, "client_secret": self.client_secret}
        if not wanted.items() <= form.items():
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if self.challenges.pop(form["code"], None) != challenge or form["redirect_uri"] != self.callback:
            return 400, {"error": "invalid_grant"}
        self.tokens.add(token := secrets.token_hex(8))
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    def userinfo(self, authorization: str) -> Answer:
        """Return the user's claims if the token is valid."""
        if authorization.removeprefix("Bearer ") not in self.tokens:
            return 401, {"error": "invalid_token"}
        return 200, self.claims


class Handler(BaseHTTPRequestHandler):
    """Passes HTTP requests to the `Provider`."""

    provider: Provider

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if where.path == "/authorize":
            self._redirect(self.provider.authorize(dict(parse_qsl(where.query))))
        else:
            self._answer(self.provider.userinfo(self.headers["Authorization"] or ""))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(self.provider.token(dict(parse_qsl(body))))

    def _redirect(self, address: str | None) -> None:
        self.send_response(302 if address else 400)
        self.send_header("Location", address or "")
        self.end_headers()

    def _answer(self, answer: Answer) -> None:
        status, body = answer
        self.send_response(self.provider.broken.get(urlsplit(self.path).path, status))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        """Log nothing, to keep pytest's output short."""


@contextmanager
def running(address: str, *, callback: str) -> Iterator[Provider]:
    """Run a provider at an address of this machine that both the browser and the hub can reach."""
    handler = type("Handler", (Handler,), {})
    with ThreadingHTTPServer((address, 0), handler) as server:
        handler.provider = Provider(f"http://{address}:{server.server_port}", callback)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield handler.provider
        finally:
            server.shutdown()
            thread.join()
