"""Runs a real Caddy with the configuration of docker-compose.yml in front of a real hub and its proxy.

Only the ports and addresses differ, and Caddy signs the certificates itself, because no public authority issues
certificates for these names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hub.process import local_session, wait_until
from spawner_config.local import free_port
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from spawner_config.settings import ROOT
from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import requests

CONFIG = ROOT / "tests/caddy_config.py"
TOKEN = "0123456789abcdef" * 4
ADMIN, ADMIN_PASSWORD = "root", "a password for tests"
PASSWORD = "three quiet horses"
START_SECONDS = 20


class Caddy:
    """The ports, the URL and the settings of a Caddy, and sessions that trust its own certificate authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http, self.https = free_port(), free_port()
        self.url = f"https://{DEFAULT_DOMAIN}:{self.https}"

    def settings(self, hub: RunningHub) -> str:
        """Return the Caddyfile of docker-compose.yml with this machine's ports and a local certificate authority."""
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


@contextmanager
def hub_behind_caddy(folder: Path) -> Iterator[tuple[RunningHub, Caddy]]:
    """Run a Caddy in front of a hub on which anyone can sign up. Each address can create one account."""
    program = shutil.which("caddy")
    assert program, "these tests need caddy; `make test` installs it"
    caddy = Caddy(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFIGPROXY_AUTH_TOKEN", TOKEN)
        patch.setenv("FARANDOLE_PUBLIC_PORT", str(caddy.https))
        with run_hub(folder / "state", config=CONFIG) as hub:
            file = folder / "Caddyfile"
            file.write_text(caddy.settings(hub))
            command = [program, "run", "--config", str(file), "--adapter", "caddyfile"]
            environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
            with (
                (folder / "log").open("wb") as log,
                subprocess.Popen(command, env=environment, stderr=log) as process,
            ):
                try:
                    wait_until(caddy.answers, START_SECONDS)
                    yield hub, caddy
                finally:
                    process.terminate()


def submit(session: requests.Session, page: str, **form: str) -> requests.Response:
    """Submit the form on the hub's page at the URL ``page`` with the page's XSRF token, and return the response."""
    session.get(page, timeout=30)
    token = [cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf"][-1]
    return session.post(page, data={"_xsrf": token, **form}, allow_redirects=False, timeout=30)


def sign_up(session: requests.Session, caddy: Caddy, name: str) -> int:
    """Create the account of a user with the password `PASSWORD`, and return the status of the response."""
    form = {"username": name, "signup_password": PASSWORD}
    form["signup_password_confirmation"] = form["signup_password"]
    return submit(session, f"{caddy.url}/hub/signup", **form).status_code
