"""Tests for mirrors at another hub and in a bucket of S3, and for places that cannot be used."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from moto.server import ThreadedMotoServer

from hub.services.snapshots.mirrors.mirror import PASSWORD, STATE
from hub.services.snapshots.mirrors.place import MirrorPlace
from spawner_config.origins.hosts import host_label
from tests.clients.mirrors import HubFiles, restic, snapshots
from tests.clients.snapshots import ADA, HUBS_OWN, LAB, OLD_LAB, PREFIX, SCHOOL, Service, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ZOE = host_label("zoë")
AT = f"{PREFIX}mirrors"


@pytest.fixture
def login() -> dict[str, str]:
    """The settings with the login of the hub `lab` at another hub."""
    return {"user": "mirror-lab", "secret": LAB}


@pytest.fixture
def other(hub_url: str, tmp_path: Path) -> Iterator[Service]:
    """The service of another hub."""
    state = tmp_path / "state"
    state.mkdir()
    running = Service(state, hub_url)
    yield running
    running.kill()


async def test_another_hub_stores_the_mirror_and_cannot_read_it(
    hub: HubFiles, other: Service, login: dict[str, str]
) -> None:
    mirror = hub.mirror(f"rest:{other.url}{AT}", **login)
    assert await mirror.run() == []
    folder = other.folder(".mirrors") / "lab"
    assert {each.name for each in folder.iterdir()} == {STATE, "ada", ZOE}
    before = state_of(folder)
    await hub.take("ada", b"third")
    assert await mirror.run() == []
    assert before.items() <= state_of(folder).items()
    assert len(snapshots(folder / "ada", hub.state / PASSWORD)) == 3
    assert await mirror.check() == ({STATE: 2, "ada": 3, ZOE: 1}, [])
    assert other.ask("GET", f"{AT}/ada/locks/", LAB)[1] == b"[]"
    assert not (other.state / PASSWORD).exists()
    # The other hub itself has no repository of these users.
    assert other.ask("GET", f"{PREFIX}repositories/ada/config", ADA)[0] == 404


@pytest.mark.release
async def test_a_mirror_at_another_hub_is_neither_changed_nor_foreign(
    hub: HubFiles, other: Service, login: dict[str, str]
) -> None:
    assert await hub.mirror(f"rest:{other.url}{AT}", **login).run() == []
    folder = other.folder(".mirrors") / "lab"
    before = state_of(folder)
    for kind in ("data", "index", "keys", "snapshots"):
        [name, *_] = sorted(path.name for path in (folder / "ada" / kind).rglob("*") if path.is_file())
        for method in ("DELETE", "POST"):
            assert other.ask(method, f"{AT}/ada/{kind}/{name}", LAB, b"x" if method == "POST" else None)[0] == 403
        assert other.ask("GET", f"{AT}/ada/{kind}/{name}", SCHOOL)[0] == 404
        assert other.ask("GET", f"{AT}/ada/{kind}/{name}", ADA)[0] == 401
    for method, path in (("DELETE", "config"), ("POST", "config"), ("DELETE", ""), ("POST", f"keys/{'0' * 64}")):
        assert other.ask(method, f"{AT}/ada/{path}", LAB, b"x" if method == "POST" else None)[0] == 403
    assert other.ask("GET", f"{AT}/ada/config", SCHOOL)[0] == 404
    assert other.ask("GET", f"{AT}/ada/data/", SCHOOL)[1] == b"[]"
    assert state_of(folder) == before
    # Creating a repository that exists removes no key.
    assert other.ask("POST", f"{AT}/ada/?create=true", LAB, b"")[0] == 200
    assert state_of(folder) == before


def test_only_the_accounts_of_other_hubs_reach_mirrors(other: Service) -> None:
    for token in (None, ADA, OLD_LAB, "0" * 32):
        for method, path in (("POST", "?create=true"), ("GET", "config"), ("POST", "config"), ("GET", "keys/")):
            body = b"" if method == "POST" else None
            assert other.ask(method, f"{AT}/ada/{path}", token, body)[0] == 401
    assert other.ask("GET", f"{AT}/ada/config", HUBS_OWN)[0] == 403
    assert not (other.folder(".mirrors")).exists()


def test_the_account_of_a_hub_reaches_no_user(other: Service) -> None:
    other.open(ADA)
    for token in (LAB, SCHOOL):
        assert other.ask("GET", f"{PREFIX}repositories/ada/config", token)[0] == 401
        assert other.ask("POST", f"{PREFIX}open", token, b"")[0] == 401


def test_names_of_repositories_cannot_leave_the_folder(other: Service) -> None:
    for name in ("..", "%2e%2e", "a%2fb", "Ada", "a" * 64, ".mirrors"):
        assert other.ask("POST", f"{AT}/{name}/?create=true", LAB, b"")[0] in {400, 404}
    # A repository that was not created takes no files.
    for path in ("config", f"keys/{'0' * 64}", f"data/{'0' * 64}"):
        assert other.ask("POST", f"{AT}/ada/{path}", LAB, b"x")[0] == 404
    assert not (other.folder(".mirrors")).exists()


@pytest.mark.release
async def test_the_key_of_a_killed_creation_is_forgotten(
    hub: HubFiles, other: Service, login: dict[str, str], tmp_path: Path
) -> None:
    mirror = hub.mirror(f"rest:{other.url}{AT}", **login)
    restic(tmp_path / "half", hub.state / PASSWORD, "init")
    [key] = (tmp_path / "half" / "keys").iterdir()
    assert other.ask("POST", f"{AT}/{STATE}/?create=true", LAB, b"")[0] == 200
    assert other.ask("POST", f"{AT}/{STATE}/keys/{key.name}", LAB, key.read_bytes())[0] == 200
    assert await mirror.run() == []
    assert key.name not in {each.name for each in (other.folder(".mirrors") / "lab" / STATE / "keys").iterdir()}


async def test_a_wrong_login_is_named_without_the_token(hub: HubFiles, other: Service, login: dict[str, str]) -> None:
    for given in ({"secret": "0" * 32}, {"user": "mirror-school"}, {"user": ""}):
        [problem] = await hub.mirror(f"rest:{other.url}{AT}", **{**login, **given}).run()
        assert f"The mirror at rest:{other.url}{AT} refuses the hub: " in problem
        assert "401" in problem
        assert "Check FARANDOLE_SNAPSHOTS_MIRROR_USER and FARANDOLE_SNAPSHOTS_MIRROR_SECRET" in problem
        assert LAB not in problem


async def test_an_address_at_which_there_are_no_mirrors_is_named(
    hub: HubFiles, other: Service, login: dict[str, str]
) -> None:
    [problem] = await hub.mirror(f"rest:{other.url}/nothing", **login).run()
    assert f"The mirror at rest:{other.url}/nothing cannot be opened: " in problem
    assert "404" in problem


async def test_a_place_that_does_not_answer_is_named(hub: HubFiles) -> None:
    for place in ("rest:http://127.0.0.1:9/mirror", "s3:http://127.0.0.1:9/bucket/mirror"):
        [problem] = await hub.mirror(place).run()
        assert f"The mirror at {place} cannot be reached: [Errno 111] Connection refused." in problem


async def test_a_host_that_is_no_name_is_named(hub: HubFiles) -> None:
    place = f"rest:https://{'x' * 64}.example.org/mirror"
    [problem] = await hub.mirror(place).run()
    assert f"The mirror at {place} cannot be reached: " in problem


class FullHub(BaseHTTPRequestHandler):
    """A server that has nothing, and stores nothing, because its disk is full."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("?create=true"):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_error(507, "The disk with the hub's snapshots is full.")

    def log_message(self, *_args: Any) -> None:
        """Keep the output of tests short."""


async def test_a_full_place_is_named_without_a_minute_of_attempts(hub: HubFiles) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FullHub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        place = f"rest:http://127.0.0.1:{server.server_address[1]}/mirror"
        [problem] = await hub.mirror(place).run()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert f"The mirror at {place} is full: " in problem
    assert "The disk with the hub's snapshots is full" in problem


@pytest.mark.release
async def test_a_bucket_has_the_mirror(hub: HubFiles) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        place = f"s3:http://{host}:{port}/bucket/farandole"
        mirror = hub.mirror(place, user="key", secret="secret of the key")
        assert await mirror.run() == []
        await hub.take("ada", b"third")
        assert await mirror.run() == []
        assert await mirror.check() == ({STATE: 2, "ada": 3, ZOE: 1}, [])
        assert await mirror.restore("ada") == 0
    finally:
        server.stop()


def test_only_restic_gets_the_login() -> None:
    place = MirrorPlace(address="rest:https://hub.example.org/services/snapshots/mirrors", user="a b", secret="x/y@z")
    assert place.repository("ada") == "rest:https://a%20b:x%2Fy%40z@hub.example.org/services/snapshots/mirrors/ada/"
    assert place.environment == {}
    assert "x/y@z" not in repr(place)
    bucket = MirrorPlace(address="s3:s3.example.org/bucket", user="id", secret="key")
    assert bucket.repository("ada") == "s3:s3.example.org/bucket/ada"
    assert bucket.environment == {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
    assert MirrorPlace(address="/mnt/a:b").repository("ada") == "/mnt/a:b/ada"
