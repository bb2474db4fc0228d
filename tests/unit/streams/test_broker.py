"""Tests for the address of a NATS server and the login there."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from farandole import streams
from farandole.exceptions import StreamError
from farandole.streams import Broker, hub_broker
from farandole.streams.broker import check_credentials

from spawner_config.streams.certificates import authority_certificate
from spawner_config.streams.claims import credentials
from spawner_config.streams.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = Keys("0123456789abcdef" * 4)
AUTHORITY = authority_certificate(KEYS.authority)
LOGIN = credentials(KEYS.system, KEYS.user("ada"), "ada")


def test_the_hub_names_its_server_in_the_environment() -> None:
    environment = {
        "FARANDOLE_STREAMS_URL": "tls://streams:4222",
        "FARANDOLE_STREAMS_CREDENTIALS": "secret",
        "FARANDOLE_STREAMS_CA": AUTHORITY,
    }
    assert hub_broker(environment) == Broker("tls://streams:4222", "secret", AUTHORITY)


def test_a_hub_without_streams_names_the_remedy() -> None:
    with pytest.raises(StreamError, match=r"This hub has no server for streams.*administrator.*nats://HOST:4222"):
        hub_broker({})


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Broker("nats://127.0.0.1:4222", "secret"))


def test_options_are_those_that_are_needed() -> None:
    assert Broker("nats://127.0.0.1:4222").options() == {"servers": "nats://127.0.0.1:4222"}
    assert Broker("tls://streams:4222", "secret", AUTHORITY).options().keys() == {"servers", "user_credentials", "tls"}


def test_a_wrong_certificate_of_the_authority_is_refused() -> None:
    with pytest.raises(StreamError, match="The certificate of the authority of tls://streams:4222 is invalid"):
        Broker("tls://streams:4222", "", "no certificate").options()


def test_a_file_of_credentials_is_accepted() -> None:
    check_credentials(LOGIN, "login.txt")


@pytest.mark.parametrize("text", ["", "ada:secret", "-----BEGIN USER NKEY SEED-----\nSUAA\n"])
def test_another_file_than_one_of_credentials_is_refused_without_its_content(text: str) -> None:
    with pytest.raises(StreamError, match=r"login\.txt is not a file of NATS credentials \(\.creds\)") as caught:
        check_credentials(text, "login.txt")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("damage", [lambda seed: seed[:-1], lambda seed: seed[1:], lambda _: "SU:?é", str.lower])
def test_a_damaged_seed_is_refused(damage: Callable[[str], str]) -> None:
    seed = KEYS.user("ada").seed
    with pytest.raises(StreamError, match=r"The seed in the file of NATS credentials login\.txt is damaged"):
        check_credentials(LOGIN.replace(seed, damage(seed)), "login.txt")


async def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.streams.client.CONNECT_SECONDS", 0.2)
    with pytest.raises(StreamError, match=r"nats://127\.0\.0\.1:1 gives no connection: .*Connect call failed"):
        await streams.connect("nats://127.0.0.1:1")


async def test_a_server_that_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.streams.client.CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StreamError, match=f"nats://127.0.0.1:{port} gives no connection: it does not answer"):
            await streams.connect(f"nats://127.0.0.1:{port}")


async def test_an_invalid_url_is_named_without_its_password() -> None:
    with pytest.raises(StreamError, match="The NATS server nats://127.0.0.1:99999 gives no connection: nats: invalid"):
        await streams.connect("nats://ada:secret@127.0.0.1:99999")


async def test_another_server_does_not_get_the_credentials_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_STREAMS_URL", "nats://127.0.0.1:4222")
    monkeypatch.setenv("FARANDOLE_STREAMS_CREDENTIALS", "secret")
    given: list[dict[str, object]] = []

    async def connect(_client: object, **options: object) -> None:
        given.append(options)

    monkeypatch.setattr("farandole.streams.broker.Client.connect", connect)
    await streams.connect("nats://elsewhere:4222")
    await streams.connect()
    assert ["user_credentials" in options for options in given] == [False, True]
