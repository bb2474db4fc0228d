"""Tests for the panel's routes for snapshots, on a real notebook server and with the real restic."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from urllib.parse import quote

import pytest
from farandole.exceptions import SnapshotError
from farandole.server.panel import wire_routes
from farandole.server.panel.routes.clusters import PanelHandler
from farandole.server.panel.snapshots import jobs
from farandole.server.panel.snapshots.jobs import Jobs
from farandole.server.panel.snapshots.reader import SnapshotReader
from farandole.snapshots.automatic import AutomaticSnapshots, Failure
from farandole.snapshots.contents import SnapshotContents
from farandole.snapshots.model import Snapshot

from tests.panel import panel_server
from tests.unit.server.panel.test_wire import misfit


@pytest.fixture
async def server(site, tmp_path, monkeypatch):
    async with panel_server(tmp_path, monkeypatch) as server:
        panel_of(server).snapshots = SnapshotReader(site.contents)
        yield server


def panel_of(server):
    """Return the panel of a notebook server."""
    rules = [*server.app.web_app.wildcard_router.rules, *server.app.web_app.default_router.rules]
    nested = [inner for rule in rules for inner in getattr(rule.target, "rules", [rule])]
    ours = (rule for rule in nested if isinstance(rule.target, type) and issubclass(rule.target, PanelHandler))
    return next(ours).target_kwargs["panel"]


async def take(server, message=""):
    """Take a snapshot, and return it as the list has it."""
    done = await server.ask("POST", "snapshots", 202, json={"message": message})
    assert misfit(done, wire_routes.SnapshotJob) is None
    assert (done["done"], done["problem"]) == (True, None)
    return (await server.ask("GET", "snapshots?limit=1"))["snapshots"][0]


async def restore(server, snapshot, path, status=202, *, to=None, keep_both=False):
    body = {"path": path, "to": to, "keep_both": keep_both}
    return await server.ask("POST", f"snapshots/{snapshot['id']}/restore", status, json=body)


async def test_snapshots_are_taken_listed_and_their_changes_counted(server, site):
    (site.home / "a.csv").write_text("one")
    first = await take(server, " before cleaning ")
    (site.home / "a.csv").write_text("one, two")
    (site.home / "b.csv").write_text("new")
    second = await take(server)
    page = await server.ask("GET", "snapshots?limit=1&offset=1")
    assert misfit(page, wire_routes.SnapshotPage) is None
    assert (page["snapshots"], page["total"], page["taking"]) == ([first], 2, None)
    assert (first["message"], second["message"]) == ("before cleaning", "")
    changes = await server.ask("GET", f"snapshots/{second['id']}/changes")
    assert misfit(changes, wire_routes.SnapshotChanges) is None
    assert changes["files"] == 2
    assert 0 < changes["added"] < 10_000
    oldest = await server.ask("GET", f"snapshots/{first['id']}/changes")
    assert oldest == {"id": first["id"], "files": None, "added": None}


@pytest.mark.release
async def test_folders_are_listed_in_parts_and_compared_with_the_home(server, site):
    data = site.home / "data"
    (data / "raw").mkdir(parents=True)
    for name in ("deleted", "newer", "older", "same"):
        (data / name).write_text(name)
        os.utime(data / name, (1_600_000_000, 1_600_000_000))
    taken = await take(server)
    (data / "deleted").unlink()
    (data / "newer").write_text("other")
    (data / "older").write_text("other")
    os.utime(data / "older", (1_500_000_000, 1_500_000_000))
    home = await server.ask("GET", f"snapshots/{taken['id']}/files")
    assert [(one["name"], one["kind"]) for one in home["entries"]] == [("data", "folder")]
    folder = await server.ask("GET", f"snapshots/{taken['id']}/files?path=data")
    assert misfit(folder, wire_routes.SnapshotFolder) is None
    assert [(one["name"], one["now"]) for one in folder["entries"]] == [
        ("raw", "same"),
        ("deleted", "missing"),
        ("newer", "newer"),
        ("older", "different"),
        ("same", "same"),
    ]
    part = await server.ask("GET", f"snapshots/{taken['id']}/files?path=data&offset=3&limit=1")
    assert ([one["name"] for one in part["entries"]], part["offset"], part["total"]) == (["older"], 3, 5)
    empty = await server.ask("GET", f"snapshots/{taken['id']}/files?path=data/raw")
    assert (empty["entries"], empty["total"]) == ([], 0)
    for path in ("nope", "data/same"):
        refused = await server.ask("GET", f"snapshots/{taken['id']}/files?path={path}", 404)
        assert (refused["code"], path in refused["message"]) == ("unknown", True)


async def test_names_with_control_characters_are_found(server, site):
    (site.home / "two\nlines\x1b[D").mkdir()
    (site.home / "two\nlines\x1b[D" / "a\x01b").write_text("one")
    taken = await take(server)
    query = quote("two\nlines\x1b[D")
    folder = await server.ask("GET", f"snapshots/{taken['id']}/files?path={query}")
    assert (folder["path"], [one["name"] for one in folder["entries"]]) == ("two\nlines\x1b[D", ["a\x01b"])
    assert folder["entries"][0]["now"] == "same"
    for name in ("path", "file"):
        found = await server.ask("GET", f"snapshots/versions?{name}={query}/a%01b")
        assert [one["id"] for one in found["versions"]] == [taken["id"]]
    refused = await server.ask("GET", f"snapshots/{taken['id']}/files?path=%e9", 400)
    assert "not valid in UTF-8" in refused["message"]


async def test_a_deleted_file_is_restored_and_an_existing_one_is_kept(server, site):
    (site.home / "data").mkdir()
    (site.home / "data" / "clicks.csv").write_text("one")
    taken = await take(server)
    (site.home / "data" / "clicks.csv").unlink()
    done = await restore(server, taken, "data/clicks.csv")
    assert misfit(done, wire_routes.SnapshotJob) is None
    assert (done["path"], done["problem"]) == ("~/data/clicks.csv", None)
    assert (site.home / "data" / "clicks.csv").read_text() == "one"

    (site.home / "data" / "clicks.csv").write_text("newer")
    refused = await restore(server, taken, "data/clicks.csv", 409)
    assert (refused["code"], refused["message"]) == (
        "exists",
        "~/data/clicks.csv exists, and nothing is overwritten.",
    )
    assert (site.home / "data" / "clicks.csv").read_text() == "newer"
    both = await restore(server, taken, "data/clicks.csv", keep_both=True)
    beside = site.home / both["path"].removeprefix("~/")
    assert (beside.parent, beside.read_text()) == (site.home / "data", "one")
    elsewhere = await restore(server, taken, "data", to="restored/here")
    assert elsewhere["path"] == "~/restored/here/data"
    assert (site.home / "restored/here/data/clicks.csv").read_text() == "one"
    assert (await restore(server, taken, "data", 409, to="restored/here"))["code"] == "exists"


@pytest.mark.release
async def test_versions_of_a_file_say_in_which_snapshot_it_changed(server, site, tmp_path):
    file = site.home / "data file.csv"
    file.write_text("one")
    os.utime(file, (1_600_000_000, 1_600_000_000))
    await take(server)
    (site.home / "other").write_text("x")
    await take(server, "same")
    file.write_text("three")
    newest = await take(server)
    for query in ("file=data%20file.csv", "path=data%20file.csv"):
        found = await server.ask("GET", f"snapshots/versions?{query}")
        assert misfit(found, wire_routes.SnapshotVersions) is None
        assert (found["path"], found["total"], found["versions"][0]["id"]) == ("data file.csv", 3, newest["id"])
        assert [(one["message"], one["size"], one["changed"], one["now"]) for one in found["versions"]] == [
            ("", 5, True, "same"),
            ("same", 3, False, "newer"),
            ("", 3, True, "newer"),
        ]
    (site.home / "outside").symlink_to(tmp_path)
    refused = await server.ask("GET", "snapshots/versions?file=outside/x", 400)
    assert "is not in your home" in refused["message"]
    assert (await server.ask("GET", "snapshots/versions?path=nope"))["versions"] == []


RESTORE = {"path": "a", "to": None, "keep_both": False}
BAD = [
    ("POST", "snapshots", {"message": 1}, "message must be of type str"),
    ("POST", "snapshots", {"message": "a\0b"}, "null character"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "path": "/etc/passwd"}, "not a path in your home"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "path": "../x"}, "not a path in your home"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "path": ""}, "name a file or folder"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "to": " "}, "name a folder"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "to": 1}, "to must be of type str"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "path": "\ud800"}, "not valid in UTF-8"),
    ("POST", "snapshots/ID/restore", {**RESTORE, "keep_both": 1}, "keep_both must be of type bool"),
    ("GET", f"snapshots/ID/files?path={quote('../x')}", None, "not a path in your home"),
    ("GET", "snapshots/ID/files?limit=many", None, "limit must be a number"),
    ("GET", "snapshots/versions", None, "all snapshots have your home"),
]


async def test_bad_requests_are_refused(server, site):
    (site.home / "x").write_text("x")
    taken = await take(server)
    for method, path, body, message in BAD:
        options = {} if body is None else {"json": body}
        refused = await server.ask(method, path.replace("ID", taken["id"]), 400, **options)
        assert (refused["code"], message in refused["message"]) == ("invalid", True), (path, refused)
    long = await server.ask("POST", "snapshots", 202, json={"message": "x" * 201})
    assert (long["problem"]["code"], "at most 200" in long["problem"]["message"]) == ("invalid", True)
    missing = await restore(server, taken, "y")
    assert "is not in the snapshot" in missing["problem"]["message"]
    for path in ("jobs/77", f"{'f' * 64}/files", "--help/changes", "latest/files"):
        assert (await server.ask("GET", f"snapshots/{path}", 404))["code"] == "unknown"


async def test_a_repository_that_cannot_be_read_is_reported_with_the_remedy(server, site):
    (site.repository / "config").unlink()
    refused = await server.ask("GET", "snapshots", 409)
    assert (refused["code"], "tell the hub's administrator" in refused["message"]) == ("failed", True)
    failed = await server.ask("POST", "snapshots", 202, json={"message": ""})
    assert (failed["done"], failed["problem"]["code"]) == (True, "failed")


async def test_an_automatic_snapshot_that_failed_is_reported_until_a_newer_one_exists(server, site):
    panel = panel_of(server)
    panel.automatic_snapshots = AutomaticSnapshots(site.snapshots, site.home, 3600.0, panel._log)
    assert (await server.ask("GET", "snapshots"))["problem"] is None
    panel.automatic_snapshots.failure = Failure(time.time(), "The repository of your snapshots is full.")
    page = await server.ask("GET", "snapshots")
    assert misfit(page, wire_routes.SnapshotPage) is None
    assert page["problem"] == "The repository of your snapshots is full."
    (site.home / "x").write_text("x")
    await take(server)
    assert (await server.ask("GET", "snapshots"))["problem"] is None


async def test_without_a_hub_the_list_says_where_snapshots_are(tmp_path, site, monkeypatch):
    async with panel_server(tmp_path, monkeypatch) as server:
        refused = await server.ask("GET", "snapshots", 409)
        assert refused["message"].startswith("Snapshots are at a hub")


class Held(SnapshotContents):
    """Snapshots of which each takes until `go` is set."""

    def __init__(self, home):
        super().__init__(home=home)
        self.go = threading.Event()

    def list(self, path=None):
        return [Snapshot(id="a" * 64, time=1.0)]

    def take(self, message=""):
        self.go.wait(30)
        raise SnapshotError("The repository of your snapshots is full.")


async def test_a_job_that_takes_long_is_followed_and_blocks_nothing(server, site, monkeypatch):
    monkeypatch.setattr(jobs, "WAIT_SECONDS", 0.05)
    held = Held(site.home)
    panel_of(server).snapshots = SnapshotReader(held)
    begun = time.monotonic()
    going_on = await server.ask("POST", "snapshots", 202, json={"message": ""})
    assert (going_on["done"], going_on["problem"]) == (False, None)
    assert time.monotonic() - begun < 10
    assert (await server.ask("GET", "snapshots"))["taking"] == going_on["id"]
    second = await server.ask("POST", "snapshots", 409, json={"message": ""})
    assert "already" in second["message"]
    held.go.set()
    async with asyncio.timeout(30):
        while not (done := await server.ask("GET", f"snapshots/jobs/{going_on['id']}"))["done"]:
            pass
    assert done["problem"]["message"] == "The repository of your snapshots is full."
    assert (await server.ask("GET", "snapshots"))["taking"] is None


async def test_only_the_results_of_the_last_jobs_are_kept():
    many = Jobs()
    made = []
    for _ in range(jobs.KEPT + 5):
        made.append(many.start(jobs.Outcome))
        assert (await many.message(made[-1]))["done"]
    assert (await many.message(made[-1]))["problem"] is None
    with pytest.raises(Exception, match="no longer known"):
        await many.message(made[0])
