"""Tests for a real Caddy with the configuration of docker-compose.yml, in front of a real hub and its proxy.

The only difference is that Caddy signs the certificates itself, since no authority gives any for these names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml

from hub.process import local_session, wait_until
from spawner_config.local import free_port
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from spawner_config.settings import ROOT
from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = ROOT / "tests/integration/caddy_config.py"
TOKEN = "0123456789abcdef" * 4
START_SECONDS = 20
SERVER_SECONDS = 60


class Caddy:
    """A running Caddy: its ports, and the certificate of its own authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http, self.https = free_port(), free_port()
        self.url = f"https://{DEFAULT_DOMAIN}:{self.https}"

    def settings(self, hub: RunningHub) -> str:
        """Return the Caddyfile of docker-compose.yml with this machine's ports and an own authority."""
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
        text = str(compose["services"]["caddy"]["environment"]["CADDYFILE"])
        ports = f"http_port {self.http}\n  https_port {self.https}"
        for old, new in {
            "${FARANDOLE_PROXY_TOKEN}": TOKEN,
            "hub:8081": f"127.0.0.1:{(hub.state / 'hub.port').read_text()}",
            "proxy:8000": f"127.0.0.1:{hub.process.settings.port}",
            "admin off": f"admin off\n  local_certs\n  skip_install_trust\n  {ports}",
        }.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        return text

    def session(self, address: str = "127.0.0.1") -> requests.Session:
        """Return a session that trusts this Caddy's authority and connects from one of this machine's addresses."""
        session = local_session()
        session.verify = str(self.folder / "caddy/pki/authorities/local/root.crt")
        adapter: Any = session.get_adapter("https://")
        adapter.poolmanager.connection_pool_kw["source_address"] = (address, 0)
        return session

    def answers(self) -> bool:
        """Return whether the hub answers through Caddy."""
        try:
            return self.session().get(f"{self.url}/hub/health", timeout=5).ok
        except OSError:
            return False


@pytest.fixture(scope="module")
def caddy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caddy]:
    """A Caddy in front of a hub on which anyone can sign up."""
    program = shutil.which("caddy")
    assert program, "these tests need caddy; `make test` installs it"
    caddy = Caddy(tmp_path_factory.mktemp("caddy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFIGPROXY_AUTH_TOKEN", TOKEN)
        patch.setenv("FARANDOLE_PUBLIC_PORT", str(caddy.https))
        with run_hub(tmp_path_factory.mktemp("hub"), config=CONFIG) as hub:
            file = caddy.folder / "Caddyfile"
            file.write_text(caddy.settings(hub))
            command = [program, "run", "--config", str(file), "--adapter", "caddyfile"]
            environment = {**os.environ, "XDG_DATA_HOME": str(caddy.folder), "XDG_CONFIG_HOME": str(caddy.folder)}
            with (
                (caddy.folder / "log").open("wb") as log,
                subprocess.Popen(command, env=environment, stderr=log) as process,
            ):
                try:
                    wait_until(caddy.answers, START_SECONDS)
                    yield caddy
                finally:
                    process.terminate()


def submit(session: requests.Session, page: str, **form: str) -> requests.Response:
    """Submit the form of a page of the hub with the page's XSRF token."""
    session.get(page, timeout=30)
    token = [cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf"][-1]
    return session.post(page, data={"_xsrf": token, **form}, allow_redirects=False, timeout=30)


def sign_up(session: requests.Session, caddy: Caddy, name: str) -> int:
    form = {"username": name, "signup_password": "three quiet horses"}
    form["signup_password_confirmation"] = form["signup_password"]
    return submit(session, f"{caddy.url}/hub/signup", **form).status_code


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
    answer = submit(session, f"{caddy.url}/hub/login", username="root", password="a password for tests")
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
