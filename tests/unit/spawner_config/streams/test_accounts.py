"""Tests for how accounts are sent to a NATS server. tests/integration/test_streams_server.py uses a real one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.streams import accounts as module
from spawner_config.streams.accounts import Accounts, owner_of
from spawner_config.streams.connection import StreamServerError
from spawner_config.streams.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DISK = 1 << 30


class Server:
    """A NATS server that records what it gets, or refuses connections while it has a ``problem``."""

    def __init__(self, problem: str = "") -> None:
        self.keys = Keys("0123456789abcdef" * 4)
        self.problem = problem
        self.connections = 0
        self.got: list[tuple[str, int]] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Server]:
        self.connections += 1
        await asyncio.sleep(0)
        if self.problem:
            raise StreamServerError(self.problem)
        yield self

    async def update(self, account: Any) -> None:
        await asyncio.sleep(0)
        self.got.append((account.name, account.disk))


def user(number: int, name: str) -> Any:
    return SimpleNamespace(id=number, name=name, created=datetime(2026, 1, 1, tzinfo=UTC))


async def test_accounts_of_servers_that_start_together_share_a_connection() -> None:
    server = Server()
    accounts = Accounts(server, DISK)
    await asyncio.gather(*(accounts.ensure(user(number, f"user{number}")) for number in range(20)))
    assert sorted(server.got) == sorted((f"user{number}", DISK) for number in range(20))
    assert server.connections == 1


async def test_the_next_start_sends_the_account_again() -> None:
    server = Server()
    accounts = Accounts(server, DISK)
    await accounts.ensure(user(1, "ada"))
    await accounts.ensure(user(1, "ada"))
    assert server.got == [("ada", DISK)] * 2


async def test_only_the_first_start_waits_for_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.1)
    server = Server("The NATS server is away.")
    accounts = Accounts(server, DISK)
    await accounts.ensure(user(1, "ada"))
    monkeypatch.setattr(module, "START_SECONDS", 60)
    async with asyncio.timeout(1):
        await accounts.ensure(user(2, "bob"))
    assert caplog.messages == ["The NATS server is away. It gets the accounts of users later."]
    server.problem = ""
    async with asyncio.timeout(5):
        while accounts.waiting:
            await asyncio.sleep(0.01)
    assert sorted(name for name, _ in server.got) == ["ada", "bob"]


async def test_a_cancellation_that_the_client_loses_ends_the_task() -> None:
    class Loses(Server):
        @asynccontextmanager
        async def connection(self) -> AsyncIterator[Server]:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise StreamServerError("refused") from None
            yield self

    accounts = Accounts(Loses(), DISK)
    start = asyncio.create_task(accounts.ensure(user(1, "ada")))
    await asyncio.sleep(0.05)
    [sending] = asyncio.all_tasks() - {start, asyncio.current_task()}
    sending.cancel()
    await asyncio.wait([sending], timeout=5)
    assert sending.cancelled()
    await start


async def test_a_user_who_is_deleted_during_a_deletion_loses_the_account_too() -> None:
    class Slow(Server):
        """A server where another user is deleted while it deletes an account."""

        def __init__(self) -> None:
            super().__init__()
            self.has = {self.keys.account(owner_of(one)).public: one for one in (ada, bob)}

        async def accounts(self) -> list[str]:
            return list(self.has)

        async def delete(self, gone: list[str]) -> None:
            for key in gone:
                del self.has[key]
            if bob in db:
                db.remove(bob)
                accounts._unchecked = Users(db)
            await asyncio.sleep(0)

    ada, bob = user(1, "ada"), user(2, "bob")
    db = [bob]
    server = Slow()
    accounts = Accounts(server, DISK)
    accounts._unchecked = Users(db)
    await accounts._start_sending()
    assert server.has == {}


class Users:
    """A database that has these users."""

    def __init__(self, users: list[Any]) -> None:
        self.users = users

    def query(self, *_: Any) -> list[Any]:
        return list(self.users)


def test_traitlets_copies_do_not_have_other_accounts() -> None:
    accounts = Accounts(Server(), DISK)
    assert deepcopy(accounts.follow).__self__ is accounts
