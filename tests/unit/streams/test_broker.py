"""Tests for the address of a NATS server and the login there."""

from __future__ import annotations

import logging

import pytest
from farandole import streams
from farandole.exceptions import StreamError
from farandole.streams import Broker, hub_broker

from spawner_config.streams.certificates import authority_certificate
from spawner_config.streams.keys import Keys

AUTHORITY = authority_certificate(Keys("0123456789abcdef" * 4).authority)


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


def test_the_warning_of_each_closed_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    Broker("tls://streams:4222").options()
    logger = logging.getLogger("asyncio")
    logger.warning("returning true from eof_received() has no effect when using ssl")
    logger.warning("something else")
    assert caplog.messages == ["something else"]


async def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.streams.client.CONNECT_SECONDS", 0.2)
    with pytest.raises(StreamError, match=r"nats://127\.0\.0\.1:1 gives no connection: .*Connect call failed"):
        await streams.connect("nats://127.0.0.1:1")


async def test_another_server_does_not_get_the_credentials_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_STREAMS_URL", "nats://127.0.0.1:4222")
    monkeypatch.setenv("FARANDOLE_STREAMS_CREDENTIALS", "secret")
    given: list[dict[str, object]] = []

    async def connect(_client: object, **options: object) -> None:
        given.append(options)

    monkeypatch.setattr("farandole.streams.client.Client.connect", connect)
    await streams.connect("nats://elsewhere:4222")
    await streams.connect()
    assert ["user_credentials" in options for options in given] == [False, True]
