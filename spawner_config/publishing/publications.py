"""The publications of a hub: which are being copied, and what has become of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.datasets.versions.helper import EXISTS
from farandole.datasets.versions.hub import COPYING, FAILED, PUBLISHED
from farandole.datasets.versions.names import DataVersion, parse_version
from farandole.reading import parse_json, printable
from tornado.log import app_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawner_config.shares import Shares


class PublicationError(RuntimeError):
    """Raised when a folder cannot be published. The message is for its user."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a user wants to publish.

    - ``spawner``: that of the user's notebook server, which knows the volume with the home
    - ``name``: the name of the data set
    - ``folder``: the folder, relative to the home
    - ``bytes``: the size of its files
    """

    user: str
    spawner: Any
    name: str
    folder: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a container has ended: its exit status and what it has printed."""

    status: int
    outcome: str


class VersionStore(ABC):
    """The volumes of versions. Each deployment with containers has its own."""

    @abstractmethod
    async def copy(self, version: DataVersion, order: Order) -> Ended | None:
        """Copy a folder to the volume of a version with `publish_command`, in a container that has no network.

        - The container mounts the user's home, read-only, and the volume, which is created if it does not exist.
        - A container that an earlier process of the hub has left for this data set is removed first.
        - Returns None, without a container, if the volume was not created by this hub.
        - Raises `PublicationError` if the container cannot run.
        """


class Publications:
    """Copies folders of publishers. Each user and each data set has one publication at a time."""

    def __init__(self, store: VersionStore, publishers: frozenset[str], shares: Shares, *, hub: str) -> None:
        self._store = store
        self._publishers = publishers
        self._hub = hub
        self._last: dict[str, int] = {}
        for data in shares.data:
            if data.version:
                self._note(parse_version(data.version))
        self._tasks: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}
        """The last publication of each user for each data set."""

    def admits(self, user: str) -> bool:
        """Return whether a user may publish."""
        return user in self._publishers

    def begin(self, order: Order) -> None:
        """Begin to copy a folder to the next version of a data set. Raises `PublicationError`."""
        if f"{order.name}-".startswith(f"{self._hub}-"):
            raise PublicationError(
                f"{order.name!r} begins like the names of the hub's own volumes; choose one that does not begin with "
                f"{self._hub!r}"
            )
        for user, name in [key for key, task in self._tasks.items() if not task.done()]:
            if name == order.name:
                raise PublicationError(f"another version of {name!r} is being published; try again when it is done")
            if user == order.user:
                raise PublicationError(f"you are publishing {name!r}; try again when it is done")
        self._tasks[order.user, order.name] = asyncio.create_task(self._publish(order))

    def state_of(self, user: str, name: str) -> dict[str, Any] | None:
        """Return the state of a user's last publication of a data set, or None if this process knows none."""
        task = self._tasks.get((user, name))
        if task is None:
            return None
        if not task.done():
            return {"state": COPYING}
        if (error := task.exception()) is None:
            return task.result()
        if isinstance(error, PublicationError):
            return {"state": FAILED, "message": str(error)}
        app_log.error("%s of %s is not published", name, user, exc_info=error)
        return {"state": FAILED, "message": "the hub has an error, which its log shows; ask the administrator"}

    async def _publish(self, order: Order) -> dict[str, Any]:
        while True:
            version = DataVersion(name=order.name, number=self._last.get(order.name, 0) + 1)
            ended = await self._store.copy(version, order)
            if ended and ended.status not in {0, EXISTS}:
                raise PublicationError(_error_of(ended))
            self._note(version)
            if ended and ended.status == 0:
                app_log.info("%s has published %s", order.user, version)
                return {"state": PUBLISHED, "version": str(version), **_result_of(ended)}

    def _note(self, version: DataVersion) -> None:
        """Remember that a version exists."""
        self._last[version.name] = max(version.number, self._last.get(version.name, 0))


def _result_of(ended: Ended) -> Mapping[str, Any]:
    try:
        found = parse_json(_last_line(ended), "the outcome")
        return {key: found[key] for key in ("files", "bytes", "digest")}
    except (ValueError, KeyError) as exc:
        raise PublicationError(_unclear(ended)) from exc


def _error_of(ended: Ended) -> str:
    try:
        return printable(str(parse_json(_last_line(ended), "the outcome")["error"]))
    except (ValueError, KeyError):
        return _unclear(ended)


def _last_line(ended: Ended) -> str:
    return ended.outcome.rstrip().rpartition("\n")[2]


def _unclear(ended: Ended) -> str:
    said = printable(ended.outcome.strip()[-500:]) or "it printed nothing"
    return f"the container that copies the folder ended with status {ended.status}: {said}"
