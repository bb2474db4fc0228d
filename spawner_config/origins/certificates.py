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
        expected = os.environ.get("CONFIGPROXY_AUTH_TOKEN", "")
        given = self.get_query_argument("token", "")
        allowed = bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
        host = self.get_query_argument("domain", "").lower()
        known = host == self._domain or (self._users and is_users_host(self.settings["db"], host, self._domain))
        self.set_status(204 if allowed and known and FORWARDED not in self.request.headers else 404)


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
