"""Tests for the snapshots' service with the real restic: what users do, and what they cannot do over raw HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from hub.services.snapshots.repository import KINDS, LARGEST_LOCK, MOST_DOWNLOADS, MOST_LOCKS
from tests.clients.snapshots import (
    ADA,
    GRACE,
    HUBS_OWN,
    NO_ACCESS,
    PREFIX,
    STRANGE,
    STRANGE_NAME,
    Client,
    Service,
    as_hub,
    state_of,
)

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = f"{PREFIX}repositories/ada/"
CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def basic(user: str, token: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{token}'.encode()).decode()}"


def message(content: bytes) -> str:
    return str(json.loads(content)["message"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a few files."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "notes.txt").write_text("first")
    (folder / "data.bin").write_bytes(os.urandom(3 << 20))
    return folder


def test_a_user_takes_checks_lists_and_restores(service: Service, restic: Client, home: Path, tmp_path: Path) -> None:
    restic("backup", str(home))
    (home / "notes.txt").write_text("second")
    restic("backup", str(home), "--tag", "message=before%20cleaning")
    assert "no errors were found" in restic("check", "--read-data")
    first, second = json.loads(restic("snapshots", "--json"))
    restic("restore", first["id"], "--target", str(tmp_path / "back"), "--include", str(home / "notes.txt"))
    [found] = (tmp_path / "back").rglob("notes.txt")
    assert found.read_text() == "first"
    assert second["tags"] == ["message=before%20cleaning"]
    assert service.names("locks") == []
    assert sorted(service.names("snapshots")) == sorted([first["id"], second["id"]])
    assert as_hub(service, "snapshots", "--no-lock").count("/home") == 2


def test_open_returns_the_same_repository_and_what_it_takes(service: Service) -> None:
    first, second = service.open(), service.open()
    assert first == second
    assert first["repository"] == f"rest:{service.url}{REPOSITORY}"
    assert first["limit"] == 200 << 20
    assert 0 < first["bytes"] < first["limit"]
    assert len(service.names("keys")) == 2


def test_each_user_has_a_password_and_none_has_the_hubs(service: Service) -> None:
    secret = (service.state / "snapshots_secret").read_text().strip()
    passwords = {service.open(ADA)["password"], service.open(GRACE)["password"], secret}
    assert len(passwords) == 3
    assert (service.state / "snapshots_secret").stat().st_mode & 0o777 == 0o600


def test_a_user_with_a_strange_name_has_a_folder_in_the_store(service: Service, home: Path, tmp_path: Path) -> None:
    before = {path.name for path in service.state.iterdir()}
    strange = Client(service.open(STRANGE), STRANGE_NAME, STRANGE, tmp_path / "client")
    strange("backup", str(home))
    assert "no errors were found" in strange("check")
    assert {path.name for path in service.state.iterdir()} == before
    assert len([path for path in (service.state / "snapshots").iterdir() if path.name.startswith("u-zo")]) == 1


def test_lists_have_sizes_in_the_second_version_of_the_protocol(service: Service, restic: Client) -> None:
    status, content, headers = service.ask("GET", f"{REPOSITORY}keys/")
    assert (status, headers["Content-Type"]) == (200, "application/vnd.x.restic.rest.v1")
    names = json.loads(content)
    assert names == service.names("keys")
    status, content, headers = service.ask("GET", f"{REPOSITORY}keys/", Accept="application/vnd.x.restic.rest.v2")
    assert (status, headers["Content-Type"]) == (200, "application/vnd.x.restic.rest.v2")
    sizes = [(service.folder() / "keys" / name).stat().st_size for name in names]
    assert json.loads(content) == [{"name": name, "size": size} for name, size in zip(names, sizes, strict=True)]


@pytest.mark.parametrize(
    ("asked", "status", "begin", "end"),
    [(None, 200, 0, None), ("bytes=3-9", 206, 3, 10), ("bytes=5-", 206, 5, None), ("bytes=0-99999999", 206, 0, None)],
)
def test_ranges(service: Service, asked: str | None, status: int, begin: int, end: int | None) -> None:
    name = service.names("keys")[0]
    whole = (service.folder() / "keys" / name).read_bytes()
    headers: dict[str, Any] = {"Range": asked} if asked else {}
    found, content, answered = service.ask("GET", f"{REPOSITORY}keys/{name}", **headers)
    assert (found, content) == (status, whole[begin:end])
    if asked:
        assert answered["Content-Range"] == f"bytes {begin}-{(end or len(whole)) - 1}/{len(whole)}"


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=9-3", "bytes=-5", "bytes=0-1,3-4", "lines=1-2"])
def test_a_range_that_is_none_is_refused(service: Service, asked: str) -> None:
    name = service.names("keys")[0]
    status, content, _ = service.ask("GET", f"{REPOSITORY}keys/{name}", Range=asked)
    assert status == 416
    assert "bytes" in message(content)


def test_who_reads_slowly_does_not_take_the_services_memory(service: Service) -> None:
    name = "f" * 64
    path = service.folder() / "data" / "ff" / name
    with path.open("wb") as file:
        file.truncate(64 << 20)
    readers = [service.start_download(name) for _ in range(MOST_DOWNLOADS)]
    assert {reader.recv(12) for reader in readers} == {b"HTTP/1.1 200"}
    late = service.start_download(name)
    assert service.ask("GET", f"{PREFIX}repositories/grace/data/{name}", GRACE)[0] == 404
    assert service.ask("GET", f"{REPOSITORY}data/")[0] == 200
    assert select.select([late], [], [], 0.2)[0] == []
    readers[0].close()
    assert late.recv(12) == b"HTTP/1.1 200"
    for reader in (*readers[1:], late):
        reader.close()
    path.unlink()


def test_head_sends_the_size(service: Service) -> None:
    status, content, headers = service.ask("HEAD", f"{REPOSITORY}config")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) == (service.folder() / "config").stat().st_size
    assert service.ask("HEAD", f"{REPOSITORY}data/{DIGEST}")[0] == 404


def test_basic_authorization_names_the_user_of_the_token(service: Service) -> None:
    config = f"{REPOSITORY}config"
    assert service.ask("GET", config, None, Authorization=basic("ada", ADA))[0] == 200
    for header in (
        basic("grace", ADA),
        basic("ada", GRACE),
        basic("", ADA),
        basic("ada", "x"),
        "Basic !",
        "Basic eA==",
    ):
        assert service.ask("GET", config, None, Authorization=header)[0] == 401, header


def every_request() -> list[tuple[str, str]]:
    """Return a request for each route and method of the repository of ada."""
    requests = [("POST", f"{PREFIX}open"), ("POST", f"{REPOSITORY}?create=true"), ("DELETE", REPOSITORY)]
    requests += [(method, f"{REPOSITORY}config") for method in ("GET", "HEAD", "POST", "DELETE")]
    for kind in KINDS:
        requests.append(("GET", f"{REPOSITORY}{kind}/"))
        requests += [(method, f"{REPOSITORY}{kind}/{DIGEST}") for method in ("GET", "HEAD", "POST", "DELETE")]
    return requests


@pytest.mark.parametrize(("method", "path"), every_request())
def test_every_route_needs_a_token_of_the_user(service: Service, method: str, path: str) -> None:
    before = state_of(service.folder())
    body = CONTENT if method == "POST" else None
    for token, status in ((None, 401), ("0" * 32, 401), (HUBS_OWN, 401), (NO_ACCESS, 403)):
        assert service.ask(method, path, token, body)[0] == status, token
    if path != f"{PREFIX}open":
        missing = path.replace("repositories/ada/", "repositories/nobody/")
        # A stranger cannot find out whether a repository exists.
        assert service.ask(method, path, GRACE, body)[:2] == service.ask(method, missing, GRACE, body)[:2]
        assert service.ask(method, path, GRACE, body)[0] == 404
    assert state_of(service.folder()) == before


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("z" * 32, 401), (NO_ACCESS, 403), (GRACE, 404)])
def test_who_sends_a_large_file_in_vain_reads_why(service: Service, token: str | None, status: int) -> None:
    content = os.urandom(20 << 20)
    path = f"{REPOSITORY}data/{hashlib.sha256(content).hexdigest()}"
    assert service.ask("POST", path, token, content)[0] == status


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_a_refused_request_does_not_end_the_connection(service: Service, method: str) -> None:
    """The hub's proxy sends the requests of other users over the same connection."""
    connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.connect()
    own = connection.sock
    for _ in range(3):
        connection.request(method, f"{REPOSITORY}data/{DIGEST}", b"" if method == "POST" else None)
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (401, own)
    connection.close()


@pytest.mark.parametrize("kind", ["data", "index", "keys", "snapshots"])
def test_nothing_but_locks_can_be_deleted(service: Service, restic: Client, home: Path, kind: str) -> None:
    restic("backup", str(home))
    before = state_of(service.folder())
    for name in service.names(kind):
        status, content, _ = service.ask("DELETE", f"{REPOSITORY}{kind}/{name}")
        assert status == 403
        assert "Only the hub removes snapshots" in message(content)
    assert service.ask("DELETE", f"{REPOSITORY}config")[0] == 403
    assert service.ask("DELETE", REPOSITORY)[0] == 403
    assert state_of(service.folder()) == before


def test_restic_itself_cannot_forget(service: Service, restic: Client, home: Path) -> None:
    restic("backup", str(home))
    before = state_of(service.folder())
    [newest] = json.loads(restic("snapshots", "--latest", "1", "--path", str(home), "--json"))
    process = subprocess.Popen(restic.command("forget", newest["id"]), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # restic tries again for a quarter of an hour.
    assert "403 Only the hub removes snapshots" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    after = state_of(service.folder())
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize("kind", ["data", "index", "snapshots", "locks"])
def test_nothing_is_overwritten(service: Service, kind: str) -> None:
    content = f"only of {kind}".encode()
    name = hashlib.sha256(content).hexdigest()
    assert service.ask("POST", f"{REPOSITORY}{kind}/{name}", body=content)[0] == 200
    before = state_of(service.folder())
    for other in (b"other content", b""):
        status, answer, _ = service.ask("POST", f"{REPOSITORY}{kind}/{name}", body=other)
        assert status == 403
        assert "has a file with this name" in message(answer)
    # restic sends a file again if it did not get the answer, for example because the hub was restarted.
    used = service.open()["bytes"]
    assert service.ask("POST", f"{REPOSITORY}{kind}/{name}", body=content)[0] == 200
    assert service.open()["bytes"] == used
    assert state_of(service.folder()) == before
    # What is no file of restic would disturb the other tests.
    [path] = service.folder().rglob(name)
    path.unlink()


def test_of_many_uploads_of_one_file_one_is_kept(service: Service) -> None:
    content = os.urandom(1 << 18)
    name = hashlib.sha256(content).hexdigest()
    used = service.open()["bytes"]
    connections = [service.start_upload(content, 1 << 17) for _ in range(8)]
    service.wait_for_parts(8)
    for connection in connections:
        connection.sendall(content[1 << 17 :])
    assert {connection.recv(12) for connection in connections} == {b"HTTP/1.1 200"}
    for connection in connections:
        connection.close()
    service.wait_for_parts(0)
    assert service.open()["bytes"] == used + len(content)
    path = service.folder() / "data" / name[:2] / name
    assert path.read_bytes() == content
    path.unlink()


def test_locks_are_listed_while_others_are_removed(service: Service) -> None:
    contents = [f"lock {number}".encode() for number in range(50)]
    paths = [f"{REPOSITORY}locks/{hashlib.sha256(content).hexdigest()}" for content in contents]
    for path, content in zip(paths, contents, strict=True):
        assert service.ask("POST", path, body=content)[0] == 200
    with ThreadPoolExecutor() as pool:
        removed = [pool.submit(service.ask, "DELETE", path) for path in paths]
        listed = [pool.submit(service.ask, "GET", f"{REPOSITORY}locks/") for _ in range(20)]
    assert {answer.result()[0] for answer in removed + listed} == {200}


@pytest.mark.parametrize("path", [f"{REPOSITORY}config", f"{REPOSITORY}?create=true", f"{REPOSITORY}keys/{DIGEST}"])
def test_only_the_hub_makes_configurations_and_keys(service: Service, path: str) -> None:
    before = state_of(service.folder())
    assert service.ask("POST", path, body=CONTENT)[0] == 403
    assert state_of(service.folder()) == before


@pytest.mark.parametrize("kind", ["data", "index", "snapshots", "locks"])
def test_a_file_with_another_digest_is_refused(service: Service, kind: str) -> None:
    before = state_of(service.folder())
    status, content, _ = service.ask("POST", f"{REPOSITORY}{kind}/{'0' * 64}", body=CONTENT)
    assert status == 400
    assert "SHA-256" in message(content)
    assert state_of(service.folder()) == before


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fgrace%2fconfig",
        "%2e%2e%2fconfig",
        "..",
        f"..%2f{DIGEST}",
        f"{DIGEST}%00",
        f"{DIGEST}%0a",
        DIGEST.upper(),
        DIGEST[:63],
        f"{DIGEST}.tmp",
        "%ff",
    ],
)
def test_names_that_are_no_digests_are_refused(service: Service, name: str) -> None:
    before = state_of(service.state)
    for kind in KINDS:
        for method in ("GET", "HEAD", "POST", "DELETE"):
            body = CONTENT if method == "POST" else None
            assert service.ask(method, f"{REPOSITORY}{kind}/{name}", body=body)[0] in {400, 403, 404}
    assert state_of(service.state) == before


@pytest.mark.parametrize(
    "path",
    [
        f"{PREFIX}repositories/ada/../grace/config",
        f"{PREFIX}repositories/ada%2f..%2fgrace/config",
        f"{PREFIX}repositories/%2e%2e/snapshots_secret",
        f"{PREFIX}repositories/ada/data/../config",
        f"{PREFIX}repositories/.service/config",
        f"{PREFIX}repositories//config",
        f"{PREFIX}repositories/ada/tmp/{DIGEST}",
        f"{PREFIX}../../etc/passwd",
    ],
)
def test_paths_lead_nowhere_else(service: Service, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert service.ask(method, path, body=CONTENT if method == "POST" else None)[0] in {403, 404, 405}


def test_locks_come_and_go(service: Service) -> None:
    path = f"{REPOSITORY}locks/{DIGEST}"
    assert service.ask("POST", path, body=CONTENT)[0] == 200
    assert service.ask("GET", path)[1] == CONTENT
    assert service.ask("DELETE", path)[0] == 200
    assert service.ask("DELETE", path)[0] == 404


def test_the_number_and_size_of_locks_is_limited(service: Service) -> None:
    contents = [f"lock {number}".encode() for number in range(MOST_LOCKS + 1)]
    paths = [f"{REPOSITORY}locks/{hashlib.sha256(content).hexdigest()}" for content in contents]
    answers = [service.ask("POST", path, body=content) for path, content in zip(paths, contents, strict=True)]
    assert [status for status, *_ in answers] == [200] * MOST_LOCKS + [507]
    assert "restic unlock" in message(answers[-1][1])
    for path in paths:
        service.ask("DELETE", path)
    large = b"x" * (LARGEST_LOCK + 1)
    assert service.ask("POST", f"{REPOSITORY}locks/{hashlib.sha256(large).hexdigest()}", body=large)[0] == 507


def test_a_broken_upload_leaves_nothing(service: Service) -> None:
    before, used = state_of(service.folder()), service.open()["bytes"]
    content = os.urandom(1 << 20)
    connection = service.start_upload(content, 1 << 19)
    service.wait_for_parts(1)
    assert service.open()["bytes"] == used + len(content)
    assert state_of(service.folder()) == before
    connection.close()
    service.wait_for_parts(0)
    assert service.open()["bytes"] == used
    assert state_of(service.folder()) == before


def test_a_body_without_a_length_is_refused(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), 30) as connection:
        head = f"POST {REPOSITORY}data/{DIGEST} HTTP/1.1\r\nHost: x\r\nAuthorization: token {ADA}\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n7\r\ncontent\r\n0\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 411 ")
    for length in (str(1 << 31), "9" * 5000):
        assert service.ask("POST", f"{REPOSITORY}data/{DIGEST}", body=b"", Content_Length=length)[0] == 413
