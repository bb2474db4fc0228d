"""Configures the hub's service for operators, the roles around it, and the notices on the hub's pages."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from spawner_config.access.secret_rules import MAKE_TOKEN, token_weakness
from spawner_config.lifecycle.idle import KEPT
from spawner_config.models import Variables
from spawner_config.operators.handlers import NoticesHandler, server_rules
from spawner_config.operators.notices import Notice, Notices
from spawner_config.operators.site import Site, Size, memory_bytes
from spawner_config.origins.application import is_other_application
from spawner_config.origins.hosts import DANGER
from spawner_config.pages import show
from spawner_config.settings import ROOT, SettingsError
from spawner_config.shares import items
from spawner_config.snapshots.mirrors import MirrorSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawner_config.profiles.profiles import ProfileSet
    from spawner_config.settings import Settings

log = logging.getLogger("farandole.operators")

SERVICE = "operators"
SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
"""What the service itself may do. Its page shows users and servers, and stops servers."""
OPERATORS = "operators"
"""The name of the role, and of the group, whose members may open the page besides administrators."""
PROMETHEUS = "prometheus"
PORT = 8082
"""The service's port in the hub's container or pod."""


def _names(value: object) -> object:
    return list(items(value)) if isinstance(value, str) else value


def _strong(token: str) -> str:
    """Refuse a weak token for the metrics."""
    if token and (weakness := token_weakness(token)):
        raise SettingsError(f"FARANDOLE_METRICS_TOKEN is too weak: it {weakness}. {MAKE_TOKEN}")
    return token


class OperatorSettings(Variables):
    """The users who may open the operators' page, and the token with which Prometheus reads the metrics."""

    operators: Annotated[list[str], BeforeValidator(_names)] = Field([], description="user names with commas between")
    metrics_token: Annotated[str, AfterValidator(_strong)] = Field("", description="64 hexadecimal digits")


def configure_operators(
    c: Any,
    settings: Settings,
    profile_set: ProfileSet,
    *,
    url: str,
    bind: str,
    memory: str | None = None,
    local: bool = False,
    engine: str = "",
    containers: str = "",
) -> None:
    """Configure the service; raises `SettingsError`.

    ``url`` is the address at which the proxy reaches the service, ``bind`` the host or address at which the service
    listens, and ``memory`` the limit of servers whose profile has none. ``engine`` and ``containers`` are those of
    `Site`.
    """
    ours = OperatorSettings.from_environment(os.environ)
    site = Site(
        state=settings.state,
        profiles={
            each.name: Size(ranks=each.ranks, gpus=each.gpus, memory=_limit(each.memory or memory, local=local))
            for each in profile_set.profiles
        },
        limits=profile_set.limits.model_dump(),
        local=local,
        engine=engine,
        containers=containers,
        secure=bool((c.JupyterHub.get("tornado_settings") or {}).get("cookie_options", {}).get("secure")),
        danger=DANGER if settings.one_origin else "",
        mirror=MirrorSettings.from_environment(os.environ).snapshots_mirror,
    )
    _add(c, "services", _service(site, url, bind))
    _add(c, "load_roles", {"name": f"{SERVICE}-service", "scopes": SCOPES, "services": [SERVICE]})
    access = {"name": OPERATORS, "scopes": [f"access:services!service={SERVICE}"], "groups": [OPERATORS]}
    _add(c, "load_roles", {**access, "users": ours.operators})
    # Only hubs with accounts of their own have this class.
    c.AccountAuthenticator.operators = ours.operators
    if ours.metrics_token:
        _add(c, "services", {"name": PROMETHEUS, "api_token": ours.metrics_token})
        _add(c, "load_roles", {"name": PROMETHEUS, "scopes": ["read:metrics"], "services": [PROMETHEUS]})
    _tell_users(c, Notices(settings.state))


def _tell_users(c: Any, notices: Notices) -> None:
    """Show the notices on the hub's pages and in JupyterLab, and leave one for a stop by an administrator."""
    of_user = NoticesOfUser(notices)
    show(c, notices=of_user)
    _add(c, "extra_handlers", (r"/api/farandole/notices", NoticesHandler, {"notices_of": of_user}))
    if is_other_application():
        log.warning(
            "The command `jupyterhub` does not tell users who stopped their servers at /hub/admin. Start "
            "`python hub/start.py` with the same arguments instead."
        )
    for rule in server_rules(notices):
        _add(c, "overriding_handlers", rule)


class NoticesOfUser:
    """A user's notices, for the hub's pages and for JupyterLab. JupyterHub calls it for each page."""

    def __init__(self, notices: Notices) -> None:
        """Show these notices."""
        self._notices = notices

    def __call__(self, user: Any) -> list[Notice]:
        """Return the notices of the logged-in user, newest first; JupyterHub passes None without a login."""
        found = [] if user is None else self._notices.of(user.name, since=created(user))
        return found[::-1]


def created(user: Any) -> datetime | None:
    """Return when a user was added to the hub, None if it is not known, as of services. The database has no zones."""
    time: datetime | None = getattr(user, "created", None)
    return time if time is None or time.tzinfo else time.replace(tzinfo=UTC)


def _service(site: Site, url: str, bind: str) -> dict[str, Any]:
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    return {
        "name": SERVICE,
        "url": url,
        "command": [sys.executable, "-m", "hub.services.operators", bind],
        "environment": {**kept, **site.environment, "PYTHONPATH": str(ROOT)},
        # The page belongs to the hub, so a login needs no confirmation.
        "oauth_no_confirm": True,
        # JupyterHub's menu leaves out the port of the hub's address. /hub/admin has a link instead.
        "display": False,
    }


def _limit(memory: str | None, *, local: bool) -> int | None:
    """Return a memory limit in bytes; local processes have none, whatever their profile says."""
    return None if memory is None or local else memory_bytes(memory)


def _add(c: Any, key: str, entry: Mapping[str, Any] | Sequence[Any]) -> None:
    c.JupyterHub[key] = [*(c.JupyterHub.get(key) or []), entry]
