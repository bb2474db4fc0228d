"""Tests for what servers of users get, and for a hub without the program of the NATS server."""

from __future__ import annotations

import logging
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from traitlets.config import Config

from spawner_config.settings import Settings, SettingsError
from spawner_config.streams import configure
from spawner_config.streams.accounts import owner_of
from spawner_config.streams.local import configure_local_streams
from spawner_config.streams.settings import StreamSettings

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = "registry.example.org/lab/iris:3"
SECRET = "0123456789abcdef" * 4
USER = SimpleNamespace(id=7, name="ada", created=datetime(2026, 1, 1))  # noqa: DTZ001 - as JupyterHub's database has it


class Accounts:
    """Accounts that record whose account is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def credentials(self, user: Any) -> str:
        return f"credentials of {user.name}"

    async def ensure(self, user: Any) -> None:
        self.sent.append(user.name)


def spawner(name: str, image: str = "", *args: str) -> Any:
    return SimpleNamespace(
        name=name, model_image=image, args=args, user=SimpleNamespace(orm_user=USER), environment={"KEPT": "yes"}
    )


@pytest.mark.parametrize(
    "about",
    [
        ("",),
        ("second",),
        ("serve-iris",),
        ("serve-iris", "", "iris:3", "--from=calls", "--to=decisions"),
        ("serve-iris", IMAGE, "--from=calls", "--to=decisions"),
    ],
    ids=str,
)
async def test_notebooks_and_endpoints_get_the_credentials(about: tuple[str, ...]) -> None:
    accounts, server = Accounts(), spawner(*about)
    await configure.with_streams(None, accounts, {"FARANDOLE_STREAMS_URL": "tls://streams:4222"})(server)
    assert server.environment == {
        "KEPT": "yes",
        "FARANDOLE_STREAMS_URL": "tls://streams:4222",
        "FARANDOLE_STREAMS_CREDENTIALS": "credentials of ada",
    }
    assert accounts.sent == ["ada"]


@pytest.mark.parametrize("about", [("main-w0",), ("serve-iris", IMAGE)], ids=str)
async def test_workers_and_images_without_a_stream_get_nothing(about: tuple[str, ...]) -> None:
    accounts, server = Accounts(), spawner(*about)
    await configure.with_streams(None, accounts, {"FARANDOLE_STREAMS_URL": "tls://streams:4222"})(server)
    assert (server.environment, accounts.sent) == ({"KEPT": "yes"}, [])


async def test_the_hook_before_comes_first_and_may_refuse() -> None:
    accounts, server = Accounts(), spawner("")

    async def refuse(_spawner: Any) -> None:
        raise SettingsError("refused")

    with pytest.raises(SettingsError, match="refused"):
        await configure.with_streams(refuse, accounts, {})(server)
    assert accounts.sent == []


@pytest.mark.parametrize(("url", "has_authority"), [("nats://127.0.0.1:4222", False), ("tls://streams-api:4222", True)])
def test_only_encrypted_connections_need_the_authority(
    url: str, has_authority: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, str]] = []
    monkeypatch.setattr(configure, "with_streams", lambda _before, _accounts, variables: found.append(variables))
    settings = StreamSettings(streams_secret=SECRET)
    configure.configure_streams(Config(), settings, hub_url=url, users_url="tls://streams:4222")
    assert [("FARANDOLE_STREAMS_CA" in variables) for variables in found] == [has_authority]


def test_without_the_program_a_hub_has_no_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spawner_config.streams.local.PROGRAM", "no-nats-server")
    config = Config()
    with caplog.at_level(logging.WARNING):
        configure_local_streams(config, Settings(state=tmp_path), lambda _path: 4222)
    assert config == Config()
    assert caplog.messages == [
        "There is no program no-nats-server, so the hub has no streams. Run `make setup` in the checkout."
    ]


@pytest.mark.parametrize("secret", ["", "secret", "0" * 64])
def test_a_weak_secret_is_refused(secret: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_STREAMS_SECRET is"):
        StreamSettings.from_environment({"FARANDOLE_STREAMS_SECRET": secret})


@pytest.mark.parametrize("disk", ["1", "1GB", "none", "0G", "-1G"])
def test_a_wrong_disk_limit_is_refused(disk: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_STREAMS_DISK is"):
        StreamSettings.from_environment({"FARANDOLE_STREAMS_SECRET": SECRET, "FARANDOLE_STREAMS_DISK": disk})


def test_the_owner_is_the_record_whether_its_time_has_a_zone_or_not() -> None:
    naive = owner_of(USER)
    aware = owner_of(SimpleNamespace(id=7, created=datetime.fromisoformat("2026-01-01T00:00:00+00:00")))
    assert naive == aware == "7 2026-01-01T00:00:00+00:00"
    assert owner_of(SimpleNamespace(id=7, created=None)) == "7 "
