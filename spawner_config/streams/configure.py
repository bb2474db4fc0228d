"""Gives users accounts at the hub's NATS server, and their notebooks and endpoints the credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.streams.broker import CA, CREDENTIALS, URL
from jupyterhub.utils import maybe_future

from spawner_config.operators.site import memory_bytes
from spawner_config.roles import is_worker
from spawner_config.streams.accounts import Accounts
from spawner_config.streams.connection import Server
from spawner_config.streams.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from spawner_config.streams.settings import StreamSettings


def stream_server(settings: StreamSettings, url: str) -> Server:
    """Return the hub's NATS server, which the hub reaches at ``url``."""
    return Server(url=url, keys=Keys(settings.streams_secret))


def configure_streams(c: Any, settings: StreamSettings, *, hub_url: str, users_url: str) -> None:
    """Give each user an account at the hub's NATS server, and servers of users their credentials.

    ``hub_url`` and ``users_url`` are the addresses of the NATS server for the hub and for servers of users.
    """
    server = stream_server(settings, hub_url)
    accounts = Accounts(server, memory_bytes(settings.streams_disk))
    c.FarandoleHub.start_hooks = [accounts.follow]
    variables = {URL: users_url}
    if authority := server.authority:
        variables[CA] = authority
    c.Spawner.pre_spawn_hook = with_streams(c.Spawner.get("pre_spawn_hook"), accounts, variables)


def with_streams(before: Any, accounts: Accounts, variables: dict[str, str]) -> Callable[[Any], Any]:
    """Return a ``pre_spawn_hook`` that calls the hook ``before``, and then lets a server use its user's streams.

    ``variables`` are those of all servers.
    """

    async def hook(spawner: Any) -> None:
        if before:
            await maybe_future(before(spawner))
        if _uses_streams(spawner):
            user = spawner.user.orm_user
            spawner.environment |= {**variables, CREDENTIALS: accounts.credentials(user)}
            await accounts.ensure(user)

    return hook


def _uses_streams(spawner: Any) -> bool:
    """Return whether a server gets the credentials of its user's streams.

    - A worker does not: a notebook or an endpoint publishes what its ranks compute.
    - An image of a model is a program of somebody else, and gets them only if its user lets it score a stream.
    """
    scores = any(argument.startswith("--from=") for argument in spawner.args)
    return not is_worker(spawner.name) and (scores or not spawner.model_image)
