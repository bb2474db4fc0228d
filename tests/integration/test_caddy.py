"""Tests for a real Caddy with the configuration of docker-compose.yml, in front of a real hub and its proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from hub.process import local_session, wait_until
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from tests.caddy import ADMIN, ADMIN_PASSWORD, Caddy, hub_behind_caddy, sign_up, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER_SECONDS = 60


@pytest.fixture(scope="module")
def caddy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caddy]:
    """A Caddy in front of a hub on which anyone can sign up."""
    with hub_behind_caddy(tmp_path_factory.mktemp("caddy")) as (_, caddy):
        yield caddy


def test_only_the_hosts_of_the_hub_and_of_its_users_get_a_certificate(caddy: Caddy) -> None:
    own = f"{DEFAULT_DOMAIN}:{caddy.https}"
    answer = caddy.session().get(f"https://root.{own}/hub/login", allow_redirects=False, timeout=30)
    assert answer.headers["Location"] == f"{caddy.url}/hub/login"
    for host in (f"nobody.{own}", f"x.root.{own}", f"evil.localhost:{caddy.https}"):
        with pytest.raises(requests.exceptions.SSLError):
            caddy.session().get(f"https://{host}/", timeout=30)
    issued = caddy.folder / "caddy/certificates/local"
    assert {path.name for path in issued.iterdir()} == {DEFAULT_DOMAIN, f"root.{DEFAULT_DOMAIN}"}


def test_caddy_leads_to_the_hub_and_to_a_users_server(caddy: Caddy) -> None:
    session = caddy.session()
    answer = submit(session, f"{caddy.url}/hub/login", username=ADMIN, password=ADMIN_PASSWORD)
    assert answer.status_code == 302
    assert submit(session, f"{caddy.url}/hub/spawn/root", profile="cpu").status_code == 302
    server = f"https://root.{DEFAULT_DOMAIN}:{caddy.https}/user/root/"
    wait_until(lambda: session.get(f"{server}lab", timeout=30).url.startswith(server), SERVER_SECONDS)
    answer = session.get(f"{server}api/status", timeout=30)
    assert answer.ok
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert [cookie.name for cookie in session.cookies if not cookie.secure] == []


def test_plain_http_leads_to_https(caddy: Caddy) -> None:
    answer = local_session().get(f"http://{DEFAULT_DOMAIN}:{caddy.http}/hub/login", allow_redirects=False, timeout=30)
    assert (answer.status_code, answer.headers["Location"]) == (301, f"https://{DEFAULT_DOMAIN}/hub/login")


def test_sign_ups_count_for_the_address_of_the_client(caddy: Caddy) -> None:
    assert sign_up(caddy.session("127.0.0.2"), caddy, "ada") == 200
    liar = caddy.session("127.0.0.2")
    liar.headers.update({"X-Forwarded-For": "192.0.2.1", "X-Real-Ip": "192.0.2.1"})
    assert sign_up(liar, caddy, "grace") == 429
    assert sign_up(caddy.session("127.0.0.3"), caddy, "emmy") == 200
