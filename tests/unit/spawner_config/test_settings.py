from __future__ import annotations

import socket
import stat
from typing import TYPE_CHECKING

import pytest

from images.notebook.start import copy_notebooks
from spawner_config.access.transport import check_transport
from spawner_config.local import kept_port
from spawner_config.origins.compose import is_loopback
from spawner_config.origins.configure import check_domain
from spawner_config.settings import (
    Settings,
    SettingsError,
    check_together,
    ensure_password,
    ensure_secret,
    exit_on_bad_settings,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_environment_sets_port_and_state_folder(tmp_path: Path) -> None:
    settings = Settings.from_environment({"FARANDOLE_PORT": "8123", "FARANDOLE_STATE": str(tmp_path)})
    assert (settings.port, settings.state) == (8123, tmp_path)
    assert Settings.from_environment({}).port == 8000


@pytest.mark.parametrize("port", ["0", "65536", "eighty", "-1"])
def test_an_invalid_port_is_named(port: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_PORT"):
        Settings.from_environment({"FARANDOLE_PORT": port})


def test_the_password_is_created_once_and_private(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path / "state")
    password = ensure_password(settings)
    assert len(password) >= 12
    assert ensure_password(settings) == password
    assert stat.S_IMODE(settings.password_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.state.stat().st_mode) == 0o700


def test_a_secret_is_generated_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "streams_secret"
    found = ensure_secret(path)
    assert len(bytes.fromhex(found)) == 32
    assert ensure_secret(path) == found
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_part_of_a_secret_of_a_killed_hub_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "streams_secret.part").write_text("0123")
    assert len(ensure_secret(tmp_path / "streams_secret")) == 64


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("", False), ("hub.lab", False)],
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_an_invalid_setting_stops_the_hub_with_only_its_message() -> None:
    with pytest.raises(SystemExit, match="The hub does not start. FARANDOLE_PORT is 'x'"):  # noqa: SIM117
        with exit_on_bad_settings():
            Settings.from_environment({"FARANDOLE_PORT": "x"})
    with pytest.raises(ValueError, match="a bug"), exit_on_bad_settings():
        raise ValueError("a bug")


def test_notebooks_never_replace_those_of_the_user(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    for folder in (source, home):
        folder.mkdir()
    (source / "a.ipynb").write_text("new")
    (source / "b.ipynb").write_text("new")
    (home / "a.ipynb").write_text("mine")
    copy_notebooks(source, home)
    assert (home / "a.ipynb").read_text() == "mine"
    assert (home / "b.ipynb").read_text() == "new"


def test_a_port_is_kept_unless_another_process_uses_it(tmp_path):
    path = tmp_path / "hub.port"
    port = kept_port(path)
    assert kept_port(path) == port
    with socket.create_server(("127.0.0.1", port)):
        other = kept_port(path)
        assert other != port
    assert kept_port(path) == other


def test_a_hub_for_others_learns_all_that_is_missing_at_once() -> None:
    def check(environ: dict[str, str]) -> None:
        settings = Settings.from_environment(environ)
        check_together(lambda: check_transport(environ), lambda: check_domain(settings, "FARANDOLE_BIND=0.0.0.0"))

    https, domain = "FARANDOLE_BIND is '0.0.0.0' and there is no HTTPS", "FARANDOLE_DOMAIN is not set"
    bind, insecure = {"FARANDOLE_BIND": "0.0.0.0"}, {"FARANDOLE_HTTP": "insecure"}
    for given, wanted in (
        (bind, [https, domain]),
        ({**bind, **insecure}, [domain]),
        ({**bind, "FARANDOLE_DOMAIN": "hub.example.org"}, [https]),
        ({**bind, "FARANDOLE_ORIGINS": "one"}, [https]),
    ):
        with pytest.raises(SettingsError) as caught:
            check(given)
        assert [line.split(":")[0].split(", and FAR")[0] for line in str(caught.value).splitlines()] == wanted
    check({**bind, **insecure, "FARANDOLE_ORIGINS": "one"})
