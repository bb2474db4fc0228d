"""Snapshots as users of a real hub take and restore them in notebooks, and what another user cannot do with them."""

from __future__ import annotations

import base64
import os
import re
import shutil
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import requests
from farandole.snapshots.connection import open_repository
from farandole.snapshots.snapshots import Snapshots

from hub.process import local_session, wait_until
from tests.clients.kernel import CellError, RemoteKernel
from tests.clients.snapshots import state_of
from tests.homes import SPARSE, facts, make_strange
from tests.hub import run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hub import RunningHub

SECONDS = 120.0
USER, OTHER, INTERRUPTED = "tycho", "kepler", "brahe"
REPOSITORIES = "/services/snapshots/repositories/"
LISTED = re.compile(r"([0-9a-f]{8}) +(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\S*) +(\S.*\S|-)")
TAKEN = "Took the automatic snapshot "


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """A user's home, and a notebook in it."""

    home: Path
    kernel: RemoteKernel

    def run(self, cell: str) -> str:
        return self.kernel.execute(cell, deadline=SECONDS)


@pytest.fixture(scope="module")
def notebook(hub: RunningHub) -> Iterator[Notebook]:
    """The notebook of a user with a snapshot."""
    address, home = hub.start_notebook(USER), hub.state / "homes" / USER
    make_strange(home / "data")
    (home / "notes.txt").write_text("first")
    with RemoteKernel(address, hub.token_for(USER), "a.ipynb") as kernel:
        found = Notebook(home=home, kernel=kernel)
        said = found.run("%snapshot take 'the data'")
        assert re.match(r"snapshot [0-9a-f]{8}: \d+ files.*\nleft out: ~/.cache, ", said)
        yield found


def snapshots(hub: RunningHub, user: str, home: Path, **changed: str) -> Snapshots:
    """Return the snapshots of a user as a program on the user's server sees them."""
    return Snapshots(home=home, connect=partial(open_repository, {**hub.environment_of(user, ""), **changed}))


def test_a_user_gets_back_what_was_deleted_and_changed(notebook: Notebook) -> None:
    home, before = notebook.home, facts(notebook.home / "data")
    (home / "data" / "locked").chmod(0o700)
    shutil.rmtree(home / "data")
    (home / "notes.txt").write_text("second")
    notebook.run("%snapshot take")
    [(second, _, none), (first, moment, message)] = LISTED.findall(notebook.run("%snapshot list"))
    assert (none, message) == ("-", "the data")
    versions = notebook.run("%snapshot list notes.txt")
    assert re.search(f"{second} .* file +6 B .*\n{first} .* file +5 B ", versions)
    changes = notebook.run("%snapshot diff")
    assert re.search(r"^- +data/plain.txt$", changes, re.MULTILINE)
    assert re.search(r"^M +notes.txt$", changes, re.MULTILINE)

    assert notebook.run(f"%snapshot restore data --at '{moment}'") == f"restored: {home / 'data'}\n"
    assert facts(home / "data") == before
    assert (home / "data" / SPARSE).stat().st_blocks * 512 < 2**20
    assert not (home / "data" / "socket").exists()

    with pytest.raises(CellError, match=r"would be overwritten. Restore with `--keep-both` .* or with `--to DIR`"):
        notebook.run(f"%snapshot restore notes.txt --at {first}")
    assert [each.name for each in home.glob("notes*")] == ["notes.txt"]
    notebook.run(f"%snapshot restore notes.txt --at {first} --keep-both")
    notebook.run(f"%snapshot restore notes.txt --at {first} --to old")
    [beside] = home.glob("notes.*T*.txt")
    assert [each.read_text() for each in (home / "notes.txt", beside, home / "old" / "notes.txt")] == [
        "second",
        "first",
        "first",
    ]


def test_a_hub_that_browsers_reach_with_https_has_snapshots(hub: RunningHub, notebook: Notebook) -> None:
    """A server in front of the hub ends the encryption, and users' servers reach the hub's proxy without it."""
    public = f"https://{urlsplit(hub.url).hostname}"
    assert snapshots(hub, USER, notebook.home, JUPYTERHUB_HOST=public).list()[0].message == "the data"


@pytest.mark.release
def test_what_interrupts_a_snapshot_leaves_no_lock(hub: RunningHub) -> None:
    """The user interrupts the cell, restarts the kernel, and stops the server while the panel takes a snapshot."""
    address, token = hub.start_notebook(INTERRUPTED), hub.token_for(INTERRUPTED)
    (hub.state / "homes" / INTERRUPTED / "random").write_bytes(os.urandom(512 * 2**20))
    repository = hub.state / "snapshots" / INTERRUPTED

    def locks() -> list[Path]:
        return list((repository / "locks").iterdir())

    def stored() -> int:
        return len(list((repository / "data").glob("*/*")))

    with RemoteKernel(address, token, "a.ipynb") as kernel:
        kernel.execute("%snapshot list", deadline=SECONDS)
        request = kernel.begin("%snapshot take")
        # restic does not remove its lock yet if it is interrupted while it looks for the locks of others.
        wait_until(lambda: stored() > 0, SECONDS)
        kernel.interrupt()
        with pytest.raises(CellError, match="KeyboardInterrupt"):
            kernel.finish(request, "%snapshot take", deadline=SECONDS)
        assert locks() == []
        before = stored()
        kernel.begin("%snapshot take")
        wait_until(lambda: stored() > before, SECONDS)
        kernel.restart()
        wait_until(lambda: not locks(), SECONDS)
    headers, before = {"Authorization": f"token {token}"}, stored()
    with pytest.raises(requests.ReadTimeout):
        local_session().post(f"{address}/farandole/panel/snapshots", json={"message": ""}, headers=headers, timeout=0.2)
    wait_until(lambda: stored() > before, SECONDS)
    hub.api(token, "DELETE", f"/hub/api/users/{INTERRUPTED}/server").raise_for_status()
    wait_until(lambda: not locks(), SECONDS)


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """Sends requests with a token exactly as they are given."""

    hub: RunningHub
    authorization: str

    def status(self, method: str, path: str, body: bytes | None = None) -> int:
        parts = urlsplit(self.hub.url)
        connection = HTTPConnection("127.0.0.1", parts.port, timeout=SECONDS)
        headers = {"Host": parts.netloc, "Authorization": self.authorization}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def statuses(self, place: str, folder: Path) -> set[tuple[str, int]]:
        """Return method and status of requests that read, overwrite and delete the files of a repository."""
        found = {("DELETE", self.status("DELETE", place)), ("POST", self.status("POST", f"{place}?create=true", b""))}
        for path in (path for path in folder.rglob("*") if path.is_file()):
            kind, *_ = names = path.relative_to(folder).parts
            url = f"{place}{kind}/{names[-1]}" if len(names) > 1 else f"{place}{kind}"
            for method, body in (("GET", None), ("HEAD", None), ("POST", path.read_bytes()), ("DELETE", None)):
                found.add((method, self.status(method, url, body)))
        return found


def test_another_user_neither_reads_nor_changes_them(hub: RunningHub, notebook: Notebook) -> None:
    folder = hub.state / "snapshots" / USER
    before = state_of(folder)
    with RemoteKernel(hub.start_notebook(OTHER), hub.token_for(OTHER), "a.ipynb") as kernel:
        assert kernel.execute("%snapshot list", deadline=SECONDS).startswith("no snapshots yet")
    token = hub.environment_of(OTHER, "")["JUPYTERHUB_API_TOKEN"]
    other = Attacker(hub=hub, authorization=f"token {token}")
    assert {status for _, status in other.statuses(f"{REPOSITORIES}{USER}/", folder)} == {404}
    for way in (f"{OTHER}/../{USER}", f"{OTHER}%2f..%2f{USER}", f"%2e%2e/repositories/{USER}", f"/{USER}"):
        assert other.status("GET", f"{REPOSITORIES}{way}/config") in {400, 404}
    login = base64.b64encode(f"{USER}:{token}".encode()).decode()
    pretender = Attacker(hub=hub, authorization=f"Basic {login}")
    assert {status for _, status in pretender.statuses(f"{REPOSITORIES}{USER}/", folder)} == {401}
    assert state_of(folder) == before


def test_its_own_user_cannot_overwrite_or_delete_a_snapshot(hub: RunningHub, notebook: Notebook) -> None:
    folder = hub.state / "snapshots" / USER
    before = state_of(folder)
    own = Attacker(hub=hub, authorization=f"token {hub.environment_of(USER, '')['JUPYTERHUB_API_TOKEN']}")
    answers = {("GET", 200), ("HEAD", 200), ("POST", 403), ("DELETE", 403)}
    assert own.statuses(f"{REPOSITORIES}{USER}/", folder) == answers
    assert state_of(folder) == before


@pytest.mark.release
def test_a_notebook_server_takes_snapshots_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_SNAPSHOTS_MINUTES", "0.05")
    with run_hub(tmp_path / "hub", one_origin=True) as hub:
        hub.start_notebook(USER)
        log, home = hub.state / "logs" / f"{USER}--notebook.log", hub.state / "homes" / USER
        wait_until(lambda: log.read_text().count(TAKEN) == 1, SECONDS)
        (home / "notes.txt").write_text("first")
        wait_until(lambda: log.read_text().count(TAKEN) == 2, SECONDS)
        [first, second] = snapshots(hub, USER, home).list()
        assert f"{TAKEN}{first.short_id}" in log.read_text()
        assert f"{TAKEN}{second.short_id}" in log.read_text()
        assert (first.message, second.message) == ("", "")
        assert [one.short_id for one in snapshots(hub, USER, home).list(home / "notes.txt")] == [second.short_id]
