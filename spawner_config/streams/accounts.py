"""Keeps the accounts of the NATS server equal to the users of the hub, also if the server is away for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from jupyterhub import orm
from sqlalchemy import event
from tornado.log import app_log

from spawner_config.operators.configure import created
from spawner_config.streams.claims import Account, credentials
from spawner_config.streams.connection import StreamServerError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from spawner_config.streams.connection import Connection, Server

START_SECONDS = 2.0
"""How long the start of a server waits for its account."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""The seconds between two attempts to reach the NATS server, which grow from one number to the other."""


class Accounts:
    """The accounts of a hub's users at its NATS server.

    - An account belongs to a user's record in the hub's database: it stays with a user who is renamed, and a later user
      of the same name gets another one.
    - An account is sent before a server of its user starts, and all accounts with running servers when the hub starts.
      If the NATS server is away, servers start without delay, and it gets the accounts as soon as it is back.
    - Accounts of deleted users are deleted at once, and when the hub starts, in case the NATS server was away.
    - All methods run in the hub's event loop.
    """

    def __init__(self, server: Server, disk: int) -> None:
        """Send accounts to this server; the streams of each may have ``disk`` bytes."""
        self._server = server
        self._disk = disk
        self._waiting: dict[str, Account] = {}
        self._unchecked: Session | None = None
        self._sending: asyncio.Task[None] | None = None
        self._problem: StreamServerError | None = None
        self._is_away = False

    def __deepcopy__(self, _memo: Any) -> Self:
        """Return the same object, because traitlets copies what is configured, and a hub has one object only."""
        return self

    def credentials(self, user: orm.User) -> str:
        """Return the credentials of a user's programs."""
        owner = owner_of(user)
        return credentials(self._server.keys.account(owner), self._server.keys.user(owner), user.name)

    @property
    def waiting(self) -> list[str]:
        """The names of the users whose accounts the NATS server does not have yet."""
        return [account.name for account in self._waiting.values()]

    async def ensure(self, user: orm.User) -> None:
        """Send a user's account, and wait for at most `START_SECONDS` until the NATS server has it."""
        self._add(user)
        task = self._start_sending()
        if self._is_away:
            return
        await asyncio.wait([task], timeout=START_SECONDS)
        if not task.done() and self._problem:
            self._is_away = True
            app_log.warning("%s It gets the accounts of users later.", self._problem)

    def follow(self, db: Session) -> None:
        """Keep the accounts equal to the users in the hub's database, from the hub's start on.

        This begins to send the accounts of all users with running servers, and to delete those of former users.
        """
        for user in db.query(orm.User).filter(orm.User._orm_spawners.any(orm.Spawner.server_id.is_not(None))):
            self._add(user)
        self._unchecked = db
        self._start_sending()
        event.listen(db, "before_flush", self._on_flush)

    def _on_flush(self, db: Session, *_: Any) -> None:
        # JupyterHub deletes a user by the wrapper of the record, which the session then contains.
        if any(isinstance(getattr(record, "orm_user", record), orm.User) for record in db.deleted):
            self._unchecked = db
            # The task runs only after the hub has committed the change, because both run in the same thread.
            self._start_sending()

    def _add(self, user: orm.User) -> None:
        account = Account(key=self._server.keys.account(owner_of(user)), name=user.name, disk=self._disk)
        self._waiting[account.key.public] = account

    def _start_sending(self) -> asyncio.Task[None]:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        return self._sending

    async def _send_all(self) -> None:
        pause = SHORTEST_PAUSE
        while self._waiting or self._unchecked:
            try:
                async with self._server.connection() as connection:
                    await self._send(connection)
            except StreamServerError as exc:
                _raise_if_cancelled()
                self._problem = exc
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        self._problem, self._is_away = None, False

    async def _send(self, connection: Connection) -> None:
        while self._waiting:
            key, account = next(iter(self._waiting.items()))
            await connection.update(account)
            # The start of another server may have replaced it meanwhile.
            if self._waiting[key] is account:
                del self._waiting[key]
        if self._unchecked:
            await self._delete_former(connection, self._unchecked)

    async def _delete_former(self, connection: Connection, db: Session) -> None:
        # Forget the check before it begins, since a user who is deleted meanwhile needs another one.
        self._unchecked = None
        try:
            found = await connection.accounts()
            users = db.query(orm.User.id, orm.User.created)
            kept = {self._server.keys.account(owner_of(user)).public for user in users}
            if gone := sorted(set(found) - kept):
                await connection.delete(gone)
                app_log.info("Deleted the accounts of %d former users at the NATS server", len(gone))
        except StreamServerError:
            self._unchecked = db
            raise


def _raise_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled, since the hub could not stop otherwise.

    ``wait_for`` of Python 3.11, which nats-py calls, loses a cancellation if what it waits for fails at the same time.
    """
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


def owner_of(user: Any) -> str:
    """Return text that identifies a user's record; databases may use the number of a deleted record again."""
    time = created(user)
    return f"{user.id} {time.isoformat() if time else ''}"
