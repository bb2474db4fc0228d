"""Who uses what: the servers and users of the hub's REST API, with sizes from the profiles."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spawner_config.roles import is_worker, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawner_config.operators.site import Site, Size

UNKNOWN = "unknown"
"""The profile of servers whose profile is no longer in profiles.toml."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is starting, running or stopping. Sizes are in bytes; None means no limit, or not measured."""

    name: str
    kind: str
    profile: str
    state: str
    ranks: int
    gpus: int
    memory_limit: int | None
    memory_used: int | None
    idle: float
    """The seconds since the last activity."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A user with the servers that are not stopped; ``home`` is the disk use of the home, None if not measured."""

    name: str
    servers: tuple[Server, ...]
    idle: float | None
    """The seconds since the last activity, None if there was none yet."""
    home: int | None

    def count(self, kind: str) -> int:
        """Return the number of servers of a kind, ``notebook`` or ``worker``."""
        return sum(server.kind == kind for server in self.servers)

    @property
    def ranks(self) -> int:
        """The number of ranks for which the user's workers are made."""
        return sum(server.ranks for server in self.servers)

    @property
    def gpus(self) -> int:
        """The number of GPUs of the user's servers."""
        return sum(server.gpus for server in self.servers)

    @property
    def memory_used(self) -> int | None:
        """The memory of all servers that were measured, None if none was."""
        return _sum(server.memory_used for server in self.servers)

    @property
    def memory_limit(self) -> int | None:
        """The sum of the limits of all servers with a limit, None if none has one."""
        return _sum(server.memory_limit for server in self.servers)


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What only the service itself can measure: memory by (user, server), and homes by user, in bytes."""

    memory: Mapping[tuple[str, str], int]
    homes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the metrics show: the users with a server, the number of all users, and the GPUs of each class."""

    users: Sequence[User]
    total: int
    gpus: Mapping[str, Mapping[str, Any]]


def users_of(models: Sequence[dict[str, Any]], site: Site, measures: Measures, now: datetime) -> list[User]:
    """Return the users in the hub's answer, those with servers first, then by name."""
    users = [_user(model, site, measures, now) for model in models]
    return sorted(users, key=lambda user: (not user.servers, user.name))


def _user(model: dict[str, Any], site: Site, measures: Measures, now: datetime) -> User:
    name = model["name"]
    servers = [
        _server(each, site, measures.memory.get((name, each["name"])), now)
        for each in model["servers"].values()
        if not each["stopped"]
    ]
    return User(
        name=name,
        servers=tuple(sorted(servers, key=lambda server: (server.kind, server.name))),
        idle=_age(model.get("last_activity"), now),
        home=measures.homes.get(name),
    )


def _server(model: dict[str, Any], site: Site, memory_used: int | None, now: datetime) -> Server:
    worker = is_worker(model["name"])
    options = model.get("user_options") or {}
    profile, size = _size(options.get("profile"), site)
    return Server(
        name=model["name"],
        kind=role_of(model["name"]),
        profile=profile,
        state=_state(model),
        ranks=_ranks(options.get("ranks"), size) if worker else 0,
        gpus=size.gpus if size else 0,
        memory_limit=size.memory if size else None,
        memory_used=memory_used,
        idle=_age(model["last_activity"] or model["started"], now) or 0.0,
    )


def _size(profile: object, site: Site) -> tuple[str, Size | None]:
    name = next(iter(site.profiles)) if profile is None else profile
    return (name, site.profiles[name]) if isinstance(name, str) and name in site.profiles else (UNKNOWN, None)


def _state(model: dict[str, Any]) -> str:
    pending = {"spawn": "starting", "stop": "stopping"}.get(model["pending"])
    return pending or ("running" if model["ready"] else "starting")


def _ranks(asked: object, size: Size | None) -> int:
    return asked if isinstance(asked, int) else size.ranks if size else 1


def _age(text: str | None, now: datetime) -> float | None:
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return max(0.0, (now - (time if time.tzinfo else time.replace(tzinfo=UTC))).total_seconds())
