"""The hub's NATS server: users are apart, and only users of the hub are let in."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from typing import TYPE_CHECKING

import pytest
from farandole.streams import Broker
from jupyterhub import orm
from nats.errors import Error, NoRespondersError
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError, ServerError

from hub.services.streams.health import check
from spawner_config.local import free_port
from spawner_config.streams.accounts import Accounts, owner_of
from spawner_config.streams.claims import CONSUMERS, SUBSCRIPTIONS, Account, credentials
from spawner_config.streams.connection import Server
from spawner_config.streams.keys import Key, Keys
from spawner_config.streams.restarts import RestartWatch
from tests.nats_server import RunningNats, ignore, running_nats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from sqlalchemy.orm import Session

DISK = 1 << 20
QUIET_SECONDS = 0.3
SECONDS = 10


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNats]:
    """A NATS server with TLS."""
    with running_nats(tmp_path_factory.mktemp("nats") / "server") as running:
        yield running


@pytest.fixture
def db() -> Iterator[Session]:
    """The database of a hub with the users bob and ada."""
    session = orm.new_session_factory("sqlite:///:memory:")()
    session.add_all([orm.User(name="bob"), orm.User(name="ada")])
    session.commit()
    yield session
    session.close()
    session.bind.dispose()


@pytest.fixture
async def accounts(nats: RunningNats, db: Session) -> Accounts:
    """The accounts of both users at the server."""
    found = Accounts(nats.server, DISK)
    for user in db.query(orm.User):
        await found.ensure(user)
    return found


@pytest.fixture
async def ada(nats: RunningNats, accounts: Accounts, db: Session) -> AsyncIterator[Client]:
    """A connection of ada, who has a stream with one record."""
    async with nats.connected(accounts.credentials(named(db, "ada"))) as client:
        await client.jetstream().add_stream(name="calls", subjects=["calls.>"])
        await client.jetstream().publish("calls.first", b"secret")
        yield client


@pytest.fixture
async def bob(nats: RunningNats, accounts: Accounts, db: Session) -> AsyncIterator[Client]:
    """A connection of bob."""
    async with nats.connected(accounts.credentials(named(db, "bob"))) as client:
        yield client


def named(db: Session, name: str) -> orm.User:
    """Return the record of a user."""
    return db.query(orm.User).filter_by(name=name).one()


async def test_a_user_reads_what_the_same_user_wrote(ada: Client) -> None:
    subscription = await ada.jetstream().pull_subscribe("calls.>", durable="reader")
    [message] = await subscription.fetch(1)
    assert (message.subject, message.data) == ("calls.first", b"secret")


async def test_no_subject_of_another_user_is_read_or_written(ada: Client, bob: Client) -> None:
    heard: list[str] = []

    async def hear(message: object) -> None:
        heard.append(message.subject)

    for subject in (">", "calls.>", "_INBOX.>", "$JS.>", "$SYS.>"):
        await bob.subscribe(subject, cb=hear)
    await bob.flush()
    await ada.jetstream().publish("calls.second", b"secret")
    await ada.publish("plain", b"secret")
    await ada.flush()
    await bob.publish("calls.third", b"from bob")
    await bob.flush()
    await asyncio.sleep(QUIET_SECONDS)
    # Both subscriptions that match hear what bob himself wrote.
    assert heard == ["calls.third"] * 2
    assert (await ada.jetstream().stream_info("calls")).state.messages == 2


async def test_no_stream_of_another_user_is_listed_or_changed(ada: Client, bob: Client) -> None:
    js = bob.jetstream()
    assert await js.streams_info() == []
    for attempt in (
        js.stream_info("calls"),
        js.get_msg("calls", 1),
        js.purge_stream("calls"),
        js.delete_stream("calls"),
        js.consumers_info("calls"),
        js.pull_subscribe("calls.>", durable="reader", stream="calls"),
    ):
        with pytest.raises(NotFoundError, match="stream not found"):
            await attempt
    # The name is free for bob, since each account has its own streams.
    await js.add_stream(name="calls", subjects=["calls.>"])
    assert (await js.stream_info("calls")).state.messages == 0
    assert (await ada.jetstream().stream_info("calls")).state.messages == 1
    await js.delete_stream("calls")


async def test_the_server_tells_users_nothing_of_others(
    nats: RunningNats, db: Session, ada: Client, bob: Client
) -> None:
    other = account_of(nats, named(db, "ada"))
    for subject in (
        "$SYS.REQ.CLAIMS.LIST",
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.CLAIMS.DELETE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.VARZ",
        f"$SYS.REQ.ACCOUNT.{other}.CONNZ",
        f"$SYS.REQ.ACCOUNT.{other}.CLAIMS.LOOKUP",
    ):
        with pytest.raises(NoRespondersError):
            await bob.request(subject, b"", timeout=2)
    # The server answers this one, with the user's own connections only.
    found = json.loads((await bob.request("$SYS.REQ.SERVER.PING.CONNZ", b"", timeout=2)).data)["data"]
    assert (found["num_connections"], len(found["connections"])) == (1, 1)


@pytest.mark.parametrize("whose", ["ada", "nobody"])
async def test_no_user_deletes_the_streams_of_others_with_the_api_for_operators(
    nats: RunningNats, db: Session, ada: Client, bob: Client, whose: str
) -> None:
    purge = f"$JS.API.ACCOUNT.PURGE.{account_of(nats, named(db, 'ada')) if whose == 'ada' else whose}"
    js = bob.jetstream()
    await js.add_stream(StreamConfig(name="own", subjects=["own"], allow_direct=True))
    await js.publish("own", b"")
    await js.add_consumer("own", ConsumerConfig(durable_name="pull"))
    before = files(nats)
    with pytest.raises(TimeoutError):
        await bob.request(purge, b"", timeout=QUIET_SECONDS)
    # The server itself sends these requests, as answers to bob's.
    await bob.publish("own", b"", reply=purge)
    await bob.publish("$JS.API.CONSUMER.MSG.NEXT.own.pull", b"", reply=purge)
    await bob.publish("$JS.API.DIRECT.GET.own", b'{"seq": 1}', reply=purge)
    await js.add_consumer("own", ConsumerConfig(durable_name="push", deliver_subject=purge))
    await bob.flush()
    await asyncio.sleep(QUIET_SECONDS)
    assert before <= files(nats)
    assert (await ada.jetstream().get_msg("calls", 1)).data == b"secret"
    assert "Purge request" not in nats.log.read_text()
    await js.delete_stream("own")


def files(nats: RunningNats) -> set[Path]:
    """Return all files of streams."""
    return {path for path in (nats.folder / "jetstream").rglob("*") if path.is_file()}


async def test_no_user_fills_the_disk_by_restoring_a_stream(bob: Client) -> None:
    config = {"name": "restored", "subjects": ["restored"], "storage": "file", "retention": "limits"}
    with pytest.raises(TimeoutError):
        await bob.request(
            "$JS.API.STREAM.RESTORE.restored", json.dumps({"config": config}).encode(), timeout=QUIET_SECONDS
        )


async def test_all_users_have_streams_although_their_limits_exceed_the_disk(nats: RunningNats) -> None:
    keys = nats.server.keys
    async with nats.server.connection() as connection:
        for name in ("first", "second"):
            await connection.update(Account(key=keys.account(name), name=name, disk=1 << 50))
            async with nats.connected(credentials(keys.account(name), keys.user(name), name)) as client:
                await client.jetstream().add_stream(name="calls", subjects=["calls"])


async def test_consumers_and_subscriptions_have_limits(nats: RunningNats, accounts: Accounts, db: Session) -> None:
    async with nats.connected(accounts.credentials(named(db, "bob"))) as client:
        js = client.jetstream()
        await js.add_stream(name="read", subjects=["read"])
        for number in range(CONSUMERS):
            await js.add_consumer("read", ConsumerConfig(durable_name=f"reader{number}"))
        with pytest.raises(BadRequestError, match="maximum consumers limit reached"):
            await js.add_consumer("read", ConsumerConfig(durable_name="another"))
        await js.delete_stream("read")
        for number in range(SUBSCRIPTIONS + 1):
            await client.subscribe(f"subject.{number}")
        await until(lambda: client.is_closed)
        assert "maximum subscriptions exceeded" in str(client.last_error)


def resigned(credentials: str, key: Key, **changes: object) -> str:
    """Return credentials whose claims have these changes and a signature by ``key``."""
    [token] = [line for line in credentials.splitlines() if line.count(".") == 2]
    head, body, _ = token.split(".")
    found = json.loads(base64.urlsafe_b64decode(f"{body}==")) | changes
    content = f"{head}.{text_of(json.dumps(found).encode())}"
    return credentials.replace(token, f"{content}.{text_of(key.sign(content.encode()))}")


def text_of(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


async def test_wrong_credentials_are_refused(nats: RunningNats, accounts: Accounts, db: Session) -> None:
    keys, owner = nats.server.keys, owner_of(named(db, "ada"))
    account, user, foreign = keys.account(owner), keys.user(owner), Keys("fedcba9876543210" * 4).account(owner)
    right, bobs = accounts.credentials(named(db, "ada")), accounts.credentials(named(db, "bob"))
    async with nats.connected(resigned(right, account, name="another")):
        pass
    for wrong in (
        resigned(right, foreign),
        resigned(right, foreign, iss=foreign.public),
        # Users have no key that signs users: only the hub has those of accounts.
        resigned(right, user),
        resigned(right, user, iss=user.public),
        resigned(right, user, iss=account_of(nats, named(db, "bob"))),
        resigned(right, account, exp=int(time.time()) - 60),
        right.replace(user.seed, keys.user("another").seed),
        bobs.replace(keys.user(owner_of(named(db, "bob"))).seed, user.seed),
        "",
    ):
        with pytest.raises(Error, match="Authorization Violation"):
            async with nats.connected(wrong):
                pass


async def test_a_certificate_of_another_authority_is_refused(
    nats: RunningNats, accounts: Accounts, db: Session
) -> None:
    others = Server(url=nats.server.url, keys=Keys("fedcba9876543210" * 4)).authority
    for authority in (others, ""):
        broker = Broker(nats.server.url, accounts.credentials(named(db, "ada")), authority)
        with pytest.raises(ssl.SSLCertVerificationError):
            await broker.connect(allow_reconnect=False, error_cb=ignore)


async def test_a_full_account_says_so_and_keeps_what_it_has(ada: Client, bob: Client) -> None:
    js, record = ada.jetstream(), bytes(DISK // 8)
    with pytest.raises(BadRequestError, match="resource limits exceeded for account"):
        await publish_all(js, [record] * 9)
    assert (await js.stream_info("calls")).state.messages >= 7
    await bob.jetstream().add_stream(name="other", subjects=["other"])
    await bob.jetstream().publish("other", record)
    await js.purge_stream("calls")
    await js.publish("calls.large", record)


async def publish_all(js: JetStreamContext, records: list[bytes]) -> None:
    for record in records:
        await js.publish("calls.large", record)


async def test_streams_in_memory_are_refused(ada: Client) -> None:
    with pytest.raises(ServerError, match="insufficient memory resources"):
        await ada.jetstream().add_stream(name="memory", subjects=["memory"], storage="memory")


async def test_the_account_of_a_deleted_user_is_deleted(nats: RunningNats, db: Session, ada: Client) -> None:
    credentials, number = ada._user_credentials.data, named(db, "ada").id
    found = Accounts(nats.server, DISK)
    found.follow(db)
    db.delete(named(db, "ada"))
    db.commit()
    await until(lambda: ada.is_closed)
    with pytest.raises(Error, match="Authorization Violation"):
        async with nats.connected(credentials):
            pass
    # The next user of this name has another account, although the database uses the number of the record again.
    db.add(orm.User(name="ada"))
    db.commit()
    assert named(db, "ada").id == number
    await found.ensure(named(db, "ada"))
    async with nats.connected(found.credentials(named(db, "ada"))) as client:
        assert await client.jetstream().streams_info() == []


async def test_a_renamed_user_keeps_the_streams(
    nats: RunningNats, accounts: Accounts, db: Session, ada: Client
) -> None:
    named(db, "ada").name = "grace"
    db.commit()
    await accounts.ensure(named(db, "grace"))
    async with nats.connected(accounts.credentials(named(db, "grace"))) as client:
        assert [one.config.name for one in await client.jetstream().streams_info()] == ["calls"]


async def test_accounts_and_streams_outlive_the_server(nats: RunningNats, db: Session, ada: Client) -> None:
    credentials = ada._user_credentials.data
    nats.process.kill()
    nats.process.wait()
    nats.start()
    async with nats.connected(credentials) as client:
        assert (await client.jetstream().get_msg("calls", 1)).data == b"secret"


async def test_a_start_of_the_server_is_seen_once(nats: RunningNats) -> None:
    watch, late = RestartWatch(nats.server), RestartWatch(nats.server)
    assert [await watch.saw_start(), await watch.saw_start()] == [False, False]
    nats.stop()
    assert [await watch.saw_start(), await late.saw_start()] == [False, False]
    nats.start()
    assert [await watch.saw_start(), await late.saw_start()] == [True, True]
    assert [await watch.saw_start(), await late.saw_start()] == [False, False]


def test_the_health_check_fails_without_a_server(nats: RunningNats) -> None:
    check(nats.port)
    with pytest.raises(OSError, match="refused"):
        check(free_port())
    assert "TLS handshake error" not in nats.log.read_text().rpartition("Server is ready")[2]


async def test_accounts_are_sent_as_soon_as_the_server_is_back(
    nats: RunningNats, db: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spawner_config.streams.accounts.START_SECONDS", 0.5)
    found, user = Accounts(nats.server, DISK), named(db, "ada")
    nats.stop()
    begun = time.monotonic()
    for _ in range(3):
        await found.ensure(user)
    assert time.monotonic() - begun < 1
    [warning] = [text for text in caplog.messages if "gets the accounts of users later" in text]
    assert f"{nats.server.url} gives the hub no connection: ConnectionRefused" in warning
    nats.start()
    await until(lambda: not found.waiting)
    async with nats.connected(found.credentials(user)) as client:
        await client.flush()


async def test_a_hub_that_starts_sends_the_accounts_of_running_servers(nats: RunningNats, db: Session) -> None:
    ada, bob = named(db, "ada"), named(db, "bob")
    ada._orm_spawners.append(orm.Spawner(name="", server=orm.Server()))
    bob._orm_spawners.append(orm.Spawner(name=""))
    db.commit()
    async with nats.server.connection() as connection:
        stranger = Account(key=nats.server.keys.account("stranger"), name="stranger", disk=DISK)
        await connection.update(stranger)
        found = Accounts(nats.server, DISK)
        found.follow(db)
        assert found.waiting == ["ada"]
        await until(lambda: not found.waiting)
        async with nats.connected(found.credentials(ada)) as client:
            await client.flush()
        async with asyncio.timeout(SECONDS):
            while stranger.key.public in await connection.accounts():
                await asyncio.sleep(0.05)


async def until(happened: Callable[[], bool]) -> None:
    """Return once ``happened()`` is true. Raises TimeoutError if it does not become true soon."""
    async with asyncio.timeout(SECONDS):
        while not happened():
            await asyncio.sleep(0.05)


def account_of(nats: RunningNats, user: orm.User) -> str:
    """Return the public key of a user's account."""
    return nats.server.keys.account(owner_of(user)).public
