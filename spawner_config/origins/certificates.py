"""Lets Caddy ask which hosts may get a certificate: the hub's own host and the hosts of existing users."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from tornado.web import RequestHandler

from spawner_config.origins.application import FORWARDED
from spawner_config.origins.hosts import HASHED, PLAIN, host_label

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from spawner_config.settings import Settings

PATH = "/api/farandole/certificate"


class CertificateHandler(RequestHandler):
    """``GET ?domain=HOST&token=TOKEN`` answers 204 if the host belongs to this hub, else 404.

    The answer reveals which users exist. A request must therefore contain the token that the hub, the proxy and Caddy
    share, and must not come through the proxy.
    """

    def initialize(self, domain: str, *, users: bool) -> None:
        """Store the hub's host, and whether users have separate hosts."""
        self._domain = domain
        self._users = users

    def get(self) -> None:
        """Answer 204 if Caddy may get a certificate for the host."""
        # Check the token first, because only the proxy and Caddy may make the hub search its users.
        self.set_status(204 if self._is_allowed() and self._is_known() else 404)

    def _is_allowed(self) -> bool:
        expected = os.environ.get("CONFIGPROXY_AUTH_TOKEN", "")
        given = self.get_query_argument("token", "")
        has_token = bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
        return has_token and FORWARDED not in self.request.headers

    def _is_known(self) -> bool:
        host = self.get_query_argument("domain", "").lower()
        return host == self._domain or (self._users and is_users_host(self.settings["db"], host, self._domain))


def admit_certificates(c: Any, settings: Settings) -> None:
    """Add the handler that Caddy asks before it gets a certificate."""
    rule = (PATH, CertificateHandler, {"domain": settings.public_domain, "users": not settings.one_origin})
    c.JupyterHub.extra_handlers = [*(c.JupyterHub.get("extra_handlers") or []), rule]


def is_users_host(db: Session, host: str, domain: str) -> bool:
    """Return whether ``host`` is the host of an existing user, below ``domain``."""
    label, _, rest = host.partition(".")
    if rest != domain:
        return False
    if HASHED.fullmatch(label):
        return any(host_label(name) == label for (name,) in db.query(orm.User.name))
    return PLAIN.fullmatch(label) is not None and orm.User.find(db, label) is not None
