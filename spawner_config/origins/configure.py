"""Configures a separate origin for each user, or a single origin for all users if FARANDOLE_ORIGINS is "one"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError

from spawner_config.origins.application import is_other_application
from spawner_config.origins.hosts import DANGER, PublicAddress, same_host, subdomain_hook
from spawner_config.pages import show
from spawner_config.refusals import refused_start
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spawner_config.settings import Settings

REMEDY = (
    "Set FARANDOLE_DOMAIN to a name that leads to this hub, as must all names below it (hub.example.org and "
    "*.hub.example.org)"
)


def configure_origins(c: Any, settings: Settings, *, https: bool, port: int, reached_by: str = "") -> None:
    """Configure the hub's address and the hosts of its users; raises `SettingsError`.

    ``port`` is the port on which browsers reach the hub. ``reached_by`` is the setting that lets other machines reach
    the hub, or an empty string if only this machine can.
    """
    if settings.one_origin:
        show(c, one_origin=DANGER)
        return
    check_domain(settings, reached_by)
    _check_application()
    scheme = "https" if https else "http"
    c.JupyterHub.subdomain_host = PublicAddress(scheme=scheme, domain=settings.public_domain, port=port).url
    c.JupyterHub.subdomain_hook = subdomain_hook
    # This prefix prevents other hosts from setting the hub's cookies. Browsers accept it only over HTTPS.
    c.JupyterHub.cookie_host_prefix_enabled = https
    c.Authenticator.post_auth_hook = refuse_login_with_taken_host
    c.Spawner.pre_spawn_hook = check_host_first(c.Spawner.get("pre_spawn_hook"))


def check_domain(settings: Settings, reached_by: str) -> None:
    """Raise `SettingsError` if other machines can reach the hub but FARANDOLE_DOMAIN is not set for users' hosts."""
    if reached_by and not (settings.domain or settings.one_origin):
        raise SettingsError(
            f"FARANDOLE_DOMAIN is not set, and {reached_by} lets other machines reach the hub. {REMEDY}: then the "
            "pages of each user have a separate origin. Or set FARANDOLE_ORIGINS=one for a single origin: then a page "
            "of any user can act as the user who opens it, for example as an administrator."
        )


def _check_application() -> None:
    """Raise `SettingsError` if the hub runs as an application other than `FarandoleHub`."""
    if is_other_application():
        raise SettingsError(
            "The command `jupyterhub` would serve the hub on the hosts of its users too. Start `python hub/start.py` "
            "with the same arguments instead, or set FARANDOLE_ORIGINS=one."
        )


def holder_of_host(db: Any, name: str) -> str | None:
    """Return another user of the hub who has the same host as ``name``, or None."""
    return same_host(name, (other for (other,) in db.query(orm.User.name)))


def refuse_login_with_taken_host(_authenticator: Any, handler: Any, model: dict[str, Any]) -> dict[str, Any]:
    """Refuse a login with HTTPError 403 if another user has the same host (``c.Authenticator.post_auth_hook``)."""
    if holder_of_host(handler.db, model["name"]) is not None:
        raise HTTPError(403, "Another user has the host that belongs to this user name. Choose another user name.")
    return model


def check_host_first(hook: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a ``pre_spawn_hook`` that refuses to start a server on another user's host, and then calls ``hook``."""

    async def checked(spawner: Any) -> None:
        if (other := holder_of_host(spawner.db, spawner.user.name)) is not None:
            raise refused_start(
                f"The users {spawner.user.name!r} and {other!r} have the same host. The administrator must delete one "
                "of them at /hub/admin.",
                reason="host",
            )
        if hook is not None:
            await maybe_future(hook(spawner))

    return checked
