"""Tests for changes to accounts in a real database. Only the starting and stopping of servers is faked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from jupyterhub import orm
from jupyterhub.objects import Server
from jupyterhub.spawner import Spawner
from jupyterhub.user import UserDict
from tornado.web import HTTPError

from spawner_config.access.accounts import change_account
from spawner_config.access.logins import AccountAuthenticator
from tests.unit.spawner_config.access.test_logins import NATIVE, configured

PASSWORD = "a long one, too"


class Hub:
    """A hub with a real database and fake servers. ``stopped`` lists the names of the servers that were stopped."""

    def __init__(self, database):
        self.database = database
        self.stopped = []
        self.fault = None
        config = configured({**NATIVE, "FARANDOLE_SIGNUP": "approval"})
        self.authenticator = AccountAuthenticator(db=database, config=config)
        database.add(orm.OAuthClient(identifier="jupyterhub"))
        database.commit()
        self.users = UserDict(
            lambda: database,
            {
                "authenticator": self.authenticator,
                "spawner_class": self._spawner_class(),
                "allow_named_servers": True,
                "proxy": SimpleNamespace(delete_user=self._no_route),
            },
        )

    async def _no_route(self, user, name):
        pass

    def _spawner_class(self):
        hub = self

        class EdgeSpawner(Spawner):
            async def start(self):
                raise NotImplementedError

            async def poll(self):
                return None

            async def stop(self, now=False):
                if hub.fault:
                    raise hub.fault
                hub.stopped.append(self.name)

        return EdgeSpawner

    async def account(self, name, *, approved=True):
        account = await self.authenticator.create_user(name, PASSWORD)
        account.is_authorized = approved
        self.database.commit()
        return account

    def user(self, name):
        """Return a hub user who has an API token and is a member of a group."""
        self.database.add(orm.User(name=name, groups=[orm.Group(name=f"friends of {name}")]))
        self.database.commit()
        user = self.users[name]
        user.new_api_token(scopes=["inherit"])
        return user

    def run_server(self, user, name):
        spawner = user.get_or_create_spawner(name, "")
        orm_server = orm.Server(base_url=f"/user/{user.name}/{name}/")
        self.database.add(orm_server)
        self.database.commit()
        spawner.server = Server(orm_server=orm_server)
        assert spawner.active
        return spawner

    def tokens(self):
        return [token.user.name for token in self.database.query(orm.APIToken)]

    async def change(self, account, action, *, by="ada"):
        await change_account(self.authenticator, self.users, account, action, by=by)


@pytest.fixture
def hub(database):
    return Hub(database)


async def test_a_locked_out_user_has_no_tokens_logins_or_servers(hub):
    account = await hub.account("grace")
    grace, _ = hub.user("grace"), hub.user("linus")
    cookie = grace.cookie_id
    for name in ("", "c-w0", "serve-iris"):
        hub.run_server(grace, name)
    hub.database.add(orm.OAuthCode(code="secret", user=grace.orm_user))
    hub.database.commit()
    await hub.change(account, "lock-out")
    assert not account.is_authorized
    assert hub.tokens() == ["linus"]
    assert not hub.database.query(orm.OAuthCode).count()
    assert grace.cookie_id != cookie
    assert sorted(hub.stopped) == ["", "c-w0", "serve-iris"]
    assert not any(spawner.active for spawner in grace.spawners.values())


async def test_a_starting_server_ends_with_the_lock_out(hub):
    account = await hub.account("grace")
    grace = hub.user("grace")
    spawner = grace.get_or_create_spawner("c-w0", "")
    spawner._spawn_pending = True
    starting = spawner._spawn_future = asyncio.ensure_future(asyncio.Event().wait())
    # JupyterHub adds the same callback, which clears the future when the start has ended.
    starting.add_done_callback(lambda _: setattr(spawner, "_spawn_future", None))
    await hub.change(account, "lock-out")
    assert starting.cancelled()
    assert hub.stopped == ["c-w0"]


async def test_a_server_that_does_not_stop_is_named_and_the_lock_out_remains(hub):
    account = await hub.account("grace")
    grace = hub.user("grace")
    for name in ("", "c-w0"):
        hub.run_server(grace, name)
    hub.fault = OSError("no engine")
    with pytest.raises(HTTPError, match=r"503.*'grace' is locked out, but .* not stopped yet: notebook, c-w0\. See"):
        await hub.change(account, "lock-out")
    assert not account.is_authorized
    assert not hub.tokens()


async def test_a_locked_out_user_can_be_approved_again(hub):
    account = await hub.account("grace")
    await hub.change(account, "lock-out")
    await hub.change(account, "approve")
    assert account.is_authorized


async def test_tokens_and_groups_of_a_discarded_account_are_removed(hub):
    account = await hub.account("grace", approved=False)
    hub.user("grace")
    await hub.change(account, "discard")
    assert hub.authenticator.get_user("grace") is None
    assert hub.users.get("grace") is None
    assert not hub.tokens()
    assert not hub.database.query(orm.Group).one().users
    assert await hub.authenticator.create_user("grace", PASSWORD) is not None


async def test_an_account_is_discarded_before_its_first_login(hub):
    await hub.change(await hub.account("grace", approved=False), "discard")
    assert hub.authenticator.get_user("grace") is None


async def test_no_account_is_discarded_while_its_servers_run(hub):
    account = await hub.account("grace", approved=False)
    hub.run_server(hub.user("grace"), "")
    with pytest.raises(HTTPError, match="400.*Servers of 'grace' are still running or stopping.*then discard"):
        await hub.change(account, "discard")
    assert hub.authenticator.get_user("grace") is account
    assert hub.tokens() == ["grace"]


async def test_an_approved_account_is_not_discarded(hub):
    account = await hub.account("grace")
    with pytest.raises(HTTPError, match="'discard' is not possible for the account 'grace'"):
        await hub.change(account, "discard")
    assert account.is_authorized


async def test_an_unknown_action_changes_nothing(hub):
    account = await hub.account("grace")
    with pytest.raises(HTTPError, match="'promote' is not possible for the account 'grace'"):
        await hub.change(account, "promote")
    assert account.is_authorized


@pytest.mark.parametrize("action", ["lock-out", "discard"])
async def test_administrators_cannot_lock_themselves_out(hub, action):
    account = await hub.account("grace")
    hub.user("grace")
    with pytest.raises(HTTPError, match=f"400.*You cannot {action} your own account"):
        await hub.change(account, action, by="grace")
    assert account.is_authorized
    assert hub.tokens() == ["grace"]
