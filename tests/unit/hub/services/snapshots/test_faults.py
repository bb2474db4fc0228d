"""Tests for snapshots when something fails: kills, limits, a full disk, no hub, no restic."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tornado.testing import bind_unused_port

from hub.services.snapshots.__main__ import server_of
from hub.services.snapshots.access import Access
from hub.services.snapshots.disk import RESERVE, Disk
from hub.services.snapshots.handlers import Service as SnapshotService
from hub.services.snapshots.mirrors.folders import Mirrors
from hub.services.snapshots.repository import BLOCK, MOST_DOWNLOADS, MOST_UPLOADS, BusyError, FullError, Repository
from hub.services.snapshots.restic import Names, ResticError, memory_limit, run_restic
from hub.services.snapshots.store import Store
from hub.services.snapshots.upload import Upload
from spawner_config.snapshots.settings import ACCESS
from tests.clients.snapshots import ADA, PREFIX, Client, Service, as_hub, state_of

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator, Iterable, Iterator
    from pathlib import Path

NAME = "0" * 64


def make_home(folder: Path, size: int) -> Path:
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.bin").write_bytes(os.urandom(size // 8))
    return folder


@pytest.fixture
def limit() -> str:
    """The disk space of a user's snapshots."""
    return "4M"


@pytest.fixture
def own_service(hub_url: str, tmp_path: Path, limit: str) -> Iterator[Service]:
    """A service for one test, which may kill it."""
    state = tmp_path / "state"
    state.mkdir()
    running = Service(state, hub_url, FARANDOLE_SNAPSHOTS_BYTES=limit)
    yield running
    running.kill()


def test_a_service_killed_in_the_middle_of_an_upload_leaves_nothing(own_service: Service) -> None:
    own_service.open()
    before = state_of(own_service.folder())
    connection = own_service.start_upload(os.urandom(1 << 20), 1 << 19)
    own_service.wait_for_parts(1)
    own_service.kill()
    connection.close()
    own_service.start()
    own_service.wait_for_parts(0)
    assert state_of(own_service.folder()) == before
    assert "no errors were found" in as_hub(own_service, "check")


@pytest.mark.parametrize("limit", ["1G"])
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=[pytest.mark.release, pytest.mark.timeout(3600)])])
def test_a_service_killed_during_backups_keeps_all_that_was_complete(
    own_service: Service, tmp_path: Path, kills: int
) -> None:
    client = Client(own_service.open(), "ada", ADA, tmp_path / "client")
    good = make_home(tmp_path / "good", 1 << 19)
    client("backup", str(good))
    choice = random.Random(24)
    for number in range(kills):
        home = make_home(tmp_path / str(number), 1 << 19)
        process = subprocess.Popen(
            client.command("backup", str(home)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(choice.uniform(0.3, 1.5))
        own_service.kill()
        process.kill()
        process.communicate(timeout=30)
        own_service.start()
        # The port is another one.
        client = Client(own_service.open(), "ada", ADA, tmp_path / f"client-{number}")
        assert "no errors were found" in as_hub(own_service, "--no-lock", "check", "--read-data")
    first = json.loads(client("snapshots", "--json"))[0]
    client("restore", first["id"], "--target", str(tmp_path / "back"))
    assert state_of(tmp_path / "back" / good.relative_to("/")) == state_of(good)


def test_a_full_repository_refuses_files_and_stays_readable(own_service: Service, tmp_path: Path) -> None:
    opened = own_service.open()
    client = Client(opened, "ada", ADA, tmp_path / "client")
    good = make_home(tmp_path / "good", 1 << 20)
    client("backup", str(good))
    large = make_home(tmp_path / "large", 40 << 20)
    process = subprocess.Popen(client.command("backup", str(large)), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert "507 Your snapshots take" in line
    assert "FARANDOLE_SNAPSHOTS_BYTES" in line
    found = own_service.open()
    assert found["bytes"] <= found["limit"] == 4 << 20
    client("restore", "latest", "--target", str(tmp_path / "back"))
    assert state_of(tmp_path / "back" / good.relative_to("/")) == state_of(good)
    assert own_service.names("locks") == []
    # A new service counts the same.
    own_service.kill()
    own_service.start()
    assert own_service.open()["bytes"] == found["bytes"]


def test_a_hub_that_does_not_answer_gives_503(tmp_path: Path) -> None:
    away = Service(tmp_path, "http://127.0.0.1:9")
    try:
        status, content, _ = away.ask("POST", f"{PREFIX}open", body=b"")
    finally:
        away.kill()
    assert status == 503
    assert "try again in a minute" in json.loads(content)["message"]


def test_without_restic_no_repository_is_left_half_made(hub_url: str, tmp_path: Path) -> None:
    lame = Service(tmp_path, hub_url, PATH=str(tmp_path))
    try:
        status, content, _ = lame.ask("POST", f"{PREFIX}open", body=b"")
        assert status == 500
        assert "ask the administrator" in json.loads(content)["message"]
        assert lame.ask("GET", f"{PREFIX}repositories/ada/config")[0] == 404
        lame.wait_for_parts(0)
    finally:
        lame.kill()


def test_a_second_service_does_not_use_the_same_folder(own_service: Service, hub_url: str) -> None:
    with pytest.raises(AssertionError, match="the service has ended"):
        Service(own_service.state, hub_url)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository with room for ten blocks."""
    (tmp_path / "data" / "00").mkdir(parents=True)
    return Repository(tmp_path, 10 * BLOCK)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """The disk of this test."""
    (tmp_path / "parts").mkdir()
    return Disk(tmp_path / "parts")


def test_a_full_disk_is_an_error_that_leaves_nothing(repository: Repository, disk: Disk) -> None:
    upload = Upload(repository, "data", NAME, 10 * BLOCK, disk)
    assert repository.used == 10 * BLOCK
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, upload._file.fileno())
    os.close(full)
    with pytest.raises(FullError, match="disk with the hub's snapshots is full"):
        upload.write(bytes(1 << 16))
    upload.close()
    upload.close()
    assert repository.used == 0
    assert list(disk.parts.iterdir()) == []


def test_snapshots_leave_room_on_the_disk_for_the_hub(tmp_path: Path, disk: Disk) -> None:
    roomy = Repository(tmp_path, 1 << 60)
    size = shutil.disk_usage(tmp_path).free - RESERVE // 2
    with pytest.raises(FullError, match="disk with the hub's snapshots is full"):
        Upload(roomy, "data", NAME, size, disk)
    assert roomy.used == 0
    Upload(roomy, "locks", NAME, 1, disk).close()


def test_files_that_arrive_at_the_same_time_leave_room_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    roomy = Repository(tmp_path, 1 << 60)
    size = (shutil.disk_usage(tmp_path).free - RESERVE) * 2 // 3
    first = Upload(roomy, "data", NAME, size, disk)
    with pytest.raises(FullError, match="disk with the hub's snapshots is full"):
        Upload(roomy, "data", NAME, size, disk)
    first.close()
    Upload(roomy, "data", NAME, size, disk).close()
    assert roomy.used == 0


@pytest.mark.parametrize(("files", "free", "is_full"), [(1 << 20, 100, True), (1 << 20, 1 << 19, False), (0, 0, False)])
def test_snapshots_leave_inodes_for_the_hub(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, files: int, free: int, is_full: bool
) -> None:
    found = SimpleNamespace(f_bavail=1 << 40, f_frsize=1, f_files=files, f_favail=free)
    monkeypatch.setattr(os, "statvfs", lambda _folder: found)
    with pytest.raises(FullError) if is_full else nullcontext(), disk.room_for(1):
        pass


async def test_restic_has_a_limit_on_its_memory(tmp_path: Path) -> None:
    """restic needs 64 MiB for the password alone."""
    (tmp_path / "password").write_text("x")
    options = ("--repo", str(tmp_path / "new"), "--password-file", str(tmp_path / "password"))
    with pytest.raises(ResticError, match=f"restic init needs more than {64 << 20} bytes of memory"):
        await run_restic("init", *options, memory=64 << 20)


async def test_a_long_line_of_restic_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.services.snapshots.restic.LONGEST_LINE", 100)
    with pytest.raises(ResticError, match="Is there a repository"):
        await run_restic("list", "blobs", "--repo", "/" + "x" * 240, "--password-command", "echo x")


def test_names_are_repeated_if_one_occurs_twice_or_too_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.services.snapshots.restic.MOST_NAMES", 3)
    names, more = Names(), Names()
    for number in (1, 2, 3):
        names.add(f"data {number:064x}\n".encode())
        more.add(f"data {number:064x}\n".encode())
    assert not names.repeated
    names.add(f"tree {2:064x}\n".encode())
    more.add(f"data {4:064x}\n".encode())
    assert names.repeated
    assert more.repeated


async def test_the_output_of_restic_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.services.snapshots.restic.MOST_OUTPUT", 100)
    with pytest.raises(ResticError, match="restic help prints more than 100 bytes"):
        await run_restic("help")


@pytest.mark.parametrize(("texts", "found"), [(["max", None], None), ([None, "2000"], 1000), (["4096\n", None], 2048)])
def test_the_memory_limit_is_half_of_what_there_is(tmp_path: Path, texts: list[str | None], found: int | None) -> None:
    files = [tmp_path / str(number) for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        if text is not None:
            file.write_text(text)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_limit(files) == (machine // 2 if found is None else found)


class Hub:
    """A hub that knows ada, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def user_for_token(self, _token: str, *, sync: bool) -> dict[str, Any]:
        assert not sync
        self.asked.set()
        await self.answers.wait()
        return {"kind": "user", "name": "ada"}

    def check_scopes(self, required_scopes: Iterable[str], _user: dict[str, Any]) -> set[str]:
        return set(required_scopes)


@pytest.fixture
def hub() -> Hub:
    """The hub of the service in this process."""
    return Hub()


@pytest.fixture
async def impatient(tmp_path: Path, hub: Hub) -> AsyncIterator[tuple[Store, int]]:
    """The store of a service in this process, whose requests end after 0.1 s, and its port."""
    store = Store(tmp_path, 1 << 30)
    store.start()
    (store.folder / "ada" / "data" / "00").mkdir(parents=True)
    (store.folder / "ada" / "config").touch()
    access = Access(lambda: hub, ACCESS)
    server = server_of(
        SnapshotService(store=store, access=access, mirrors=Mirrors(store.folder), mirror_access=access, prefix=PREFIX),
        seconds=0.1,
    )
    sock, port = bind_unused_port()
    server.add_socket(sock)
    yield store, port
    server.stop()
    await server.close_all_connections()


async def send(port: int, method: str, *headers: str, body: bytes = b"") -> tuple[StreamReader, StreamWriter]:
    """Begin a request for a file of ada."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (f"{method} {PREFIX}repositories/ada/data/{NAME} HTTP/1.1", "Host: x", f"Authorization: token {ADA}")
    writer.write("\r\n".join([*head, *headers, "", ""]).encode() + body)
    return reader, writer


async def test_a_file_that_does_not_arrive_is_given_up(impatient: tuple[Store, int]) -> None:
    """Otherwise, its repository would never be pruned."""
    store, port = impatient
    reader, writer = await send(port, "POST", "Content-Length: 10", body=b"half")
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    repository = await store.of("ada")
    assert repository is not None
    assert repository.used == 0
    assert list(store.parts.iterdir()) == []
    with repository.pruning(store.mark("ada")):
        pass


async def test_who_goes_away_while_the_hub_is_asked_leaves_no_upload(impatient: tuple[Store, int], hub: Hub) -> None:
    store, port = impatient
    hub.answers.clear()
    _, writer = await send(port, "POST", "Content-Length: 10")
    await asyncio.wait_for(hub.asked.wait(), 30)
    writer.transport.abort()
    # The service answers this request after it has noticed the end of the connection.
    reader, second = await asyncio.open_connection("127.0.0.1", port)
    second.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 404")
    second.close()
    hub.answers.set()
    repository = await store.of("ada")
    assert repository is not None
    reader, third = await send(port, "GET")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 404")
    third.close()
    assert repository.used == 0
    assert not repository.is_in_use(time.time())
    assert list(store.parts.iterdir()) == []


async def test_a_reader_that_goes_away_is_no_error(
    impatient: tuple[Store, int], caplog: pytest.LogCaptureFixture
) -> None:
    store, port = impatient
    repository = await store.of("ada")
    assert repository is not None
    with repository.path("data", NAME).open("wb") as file:
        file.truncate(64 << 20)
    reader, writer = await send(port, "GET")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 200")
    writer.transport.abort()
    for _ in range(MOST_DOWNLOADS):
        await asyncio.wait_for(repository.downloads.acquire(), 30)
    assert caplog.text == ""


def test_bytes_are_counted_while_files_arrive(repository: Repository) -> None:
    taken = [repository.begin("data", 1) for _ in range(10)]
    assert repository.used == 10 * BLOCK
    with pytest.raises(FullError, match=f"take {10 * BLOCK} of {10 * BLOCK} bytes, and 1 more do not fit"):
        repository.begin("data", 1)
    repository.end(taken[0], kept=False)
    assert repository.begin("data", BLOCK) == BLOCK


def test_the_number_of_files_that_arrive_is_limited(repository: Repository) -> None:
    for _ in range(MOST_UPLOADS):
        repository.begin("data", 0)
    with pytest.raises(BusyError, match="Send fewer"):
        repository.begin("data", 0)
