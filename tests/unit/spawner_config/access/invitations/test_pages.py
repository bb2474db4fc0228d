"""Tests for the pages of one-time links in a whole hub, without a proxy or servers."""

import base64
import csv
import io
import re
from pathlib import Path

import aiohttp
import pytest
from jupyterhub import orm
from nativeauthenticator.orm import UserInfo

from spawner_config.access.invitations.links import name_of
from spawner_config.access.invitations.pages import Row, as_csv
from spawner_config.origins.application import FarandoleHub
from spawner_config.settings import ROOT
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND
from tests.unit.spawner_config.origins.test_whole_hub import OWN, ask, running

CONFIG = ROOT / "tests" / "integration" / "accounts_config.py"
ADMIN_PASSWORD, NEW = "a password for tests", "three quiet horses"
LINK = re.compile(rf"http://{OWN}/hub/set-password#([\w-]+)")


class Visitor:
    """A browser without scripts."""

    def __init__(self, session):
        self._session = session
        self.cookies = {}

    async def get(self, path):
        return await self._ask("GET", path)

    async def post(self, path, *, xsrf=True, data=None, **fields):
        if xsrf:
            await self.get("/hub/login")
            fields["_xsrf"] = self.cookies["_xsrf"]
        for name, value in fields.items() if data is not None else ():
            data.add_field(name, value)
        return await self._ask("POST", path, data=fields if data is None else data)

    async def log_in(self, name, password):
        return (await self.post("/hub/login", username=name, password=password))[0] == 302

    async def _ask(self, method, path, **options):
        sent = {
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "Origin": f"http://{OWN}",
        }
        status, headers, text, cookies = await ask(self._session, method, path, headers=sent, **options)
        self.cookies.update(cookies)
        return status, text, headers


@pytest.fixture
async def hub(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path))
    monkeypatch.delenv("FARANDOLE_DOMAIN", raising=False)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "unused")
    application = FarandoleHub(log_level=20)
    async with running(application, CONFIG) as session:
        application.visitor = lambda: Visitor(session)
        yield application


@pytest.fixture
async def admin(hub):
    visitor = hub.visitor()
    assert await visitor.log_in("root", ADMIN_PASSWORD)
    return visitor


async def test_all_pages_name_this_project_and_lead_to_the_accounts(hub, admin):
    assert "<strong>Farandole</strong>" in (await hub.visitor().get("/hub/login"))[1]
    home = (await admin.get("/hub/home"))[1]
    assert "/hub/change-password" in home
    assert "/hub/authorize" in home
    page = (await admin.get("/hub/admin"))[1]
    assert "Create their accounts" in page
    assert "/services/operators/" in page


def uploaded(text):
    form = aiohttp.FormData()
    form.add_field("list", text, filename="course.csv", content_type="text/csv")
    return form


def result(page):
    """Return the rows of the result list that the page offers as a file."""
    encoded = re.search(r'href="data:text/csv;base64,([^"]+)" download="accounts.csv"', page)[1]
    return list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))


async def test_a_new_user_sets_a_password_with_a_link_and_logs_in(hub, admin, caplog):
    status, page, headers = await admin.post("/hub/import-accounts", names="grace\n")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    [secret] = set(LINK.findall(page))
    times = r'<time datetime="(\S{10})T(\S{5})Z" title="\1 \2 UTC">\1 \2 UTC</time>'
    assert re.search(f"until {times}", page)
    assert re.search(f"link valid until {times}", (await admin.get("/hub/authorize"))[1])
    assert "time.textContent = " in page
    assert "once a password is set" in (await admin.get("/hub/authorize"))[1]
    assert secret not in (await admin.get("/hub/authorize"))[1]

    grace = hub.visitor()
    assert not await grace.log_in("grace", "")
    status, page, _ = await grace.get("/hub/set-password")
    assert (status, "grace" in page) == (200, False)
    fields = {"secret": secret, "new_password": NEW, "new_password_confirmation": NEW}
    status, page, _ = await grace.post("/hub/save-password", **{**fields, "new_password_confirmation": "other"})
    assert "confirmation" in page
    assert f'value="{secret}"' in page
    status, page, headers = await grace.post("/hub/save-password", **fields)
    assert (status, "Your user name is <strong>grace</strong>" in page) == (200, True)
    assert headers["Cache-Control"] == "no-store"
    assert (await grace.post("/hub/save-password", **fields))[0] == 403
    assert await grace.log_in("grace", NEW)
    assert not [word for word in (secret, NEW, ADMIN_PASSWORD) if word in caplog.text]
    stored = Path(hub.db.bind.url.database).read_bytes()
    assert not [word for word in (secret, NEW) if word.encode() in stored]


async def test_a_list_creates_the_good_names_and_explains_the_others(hub, admin):
    hub.db.add_all([UserInfo(username=FIRST, password=b"x"), orm.User(name="added"), orm.User(name="boss", admin=True)])
    hub.db.commit()
    names = ["Grace", "root", "a/b", "grace", SECOND, "added", "boss", "=1+1", "linus@example.org"]
    _, page, _ = await admin.post(
        "/hub/import-accounts", data=uploaded("\n".join(["username,group"] + [f"{n},1" for n in names]))
    )
    rows = result(page)
    assert [row["username"] for row in rows if row["link"]] == ["grace", "linus@example.org"]
    refused = [row["refused"] for row in rows if row["refused"]]
    expected = [
        "Line 3: .*has an account",
        "Line 4: .*not a user name",
        "Line 5: .*is in line 2",
        "Line 6: .*home and network",
    ]
    expected += ["Line 7: .*without an account", "Line 8: .*without an account", "Line 9: .*not a user name"]
    assert len(refused) == len(expected)
    assert all(re.match(*pair) for pair in zip(expected, refused, strict=True))
    assert "7 of 9 accounts were not created" in page
    assert {account.username for account in hub.db.query(UserInfo)} == {"root", FIRST, "grace", "linus@example.org"}


async def test_a_list_that_is_sent_again_makes_new_links_for_accounts_without_a_password(hub, admin):
    for name in ("grace", "late", "boss"):
        hub.authenticator.add_account(name)
    hub.authenticator.get_user("late").is_authorized = False
    hub.db.add_all([UserInfo(username="ada", password=b"x", is_authorized=True), orm.User(name="boss", admin=True)])
    hub.db.commit()
    secrets = []
    for _ in range(2):
        _, page, _ = await admin.post("/hub/import-accounts", names="grace\nada\nlate\nboss\nroot")
        rows = result(page)
        assert [row["username"] for row in rows if row["link"]] == ["grace"]
        assert [row["refused"].count("has an account") for row in rows] == [0, 1, 1, 1, 1]
        secrets += set(LINK.findall(page))
    assert [name_of(hub.db, secret) for secret in secrets] == [None, "grace"]


async def test_a_list_that_cannot_be_read_creates_nothing(hub, admin):
    before = hub.db.query(UserInfo).count()
    for text, reason in (("ada,1\ngrace,2", "several columns"), ("", "has no names"), ("x\n" * 501, "501 names")):
        status, page, _ = await admin.post("/hub/import-accounts", data=uploaded(text))
        assert (status, "No account was created" in page, reason in page) == (400, True, True)
    assert hub.db.query(UserInfo).count() == before


async def test_a_user_whom_an_administrator_added_gets_an_account_and_an_existing_one_a_new_password(hub, admin):
    hub.db.add(orm.User(name="added"))
    hub.db.commit()
    assert 'aria-label="Create account for added"' in (await admin.get("/hub/authorize"))[1]
    assert "one-time links" in (await admin.get("/hub/admin"))[1]
    for password in (NEW, "four louder horses"):
        [secret] = set(LINK.findall((await admin.post("/hub/invite", username="added"))[1]))
        added = hub.visitor()
        fields = {"secret": secret, "new_password": password, "new_password_confirmation": password}
        assert (await added.post("/hub/save-password", **fields))[0] == 200
        assert await added.log_in("added", password)
    assert not await hub.visitor().log_in("added", NEW)
    assert (await admin.post("/hub/invite", username="nobody"))[0] == 404
    hub.authenticator.get_user("added").is_authorized = False
    hub.db.commit()
    assert (await admin.post("/hub/invite", username="added"))[0] == 400


@pytest.mark.parametrize("path", ["/hub/invite", "/hub/import-accounts"])
async def test_only_an_administrator_on_the_hubs_own_page_creates_accounts(hub, admin, path):
    hub.authenticator.add_account("grace")
    await hub.authenticator.change_password("grace", NEW)
    grace = hub.visitor()
    assert await grace.log_in("grace", NEW)
    for visitor, xsrf in ((hub.visitor(), True), (grace, True), (admin, False)):
        assert (await visitor.post(path, xsrf=xsrf, username="grace", names="mallory"))[0] == 403
    assert hub.authenticator.get_user("mallory") is None
    assert not (await admin.get("/hub/authorize"))[1].count("link valid until")
    assert (await hub.visitor().post("/hub/save-password", xsrf=False, secret="x"))[0] == 403


def test_a_spreadsheet_runs_no_name_as_a_formula():
    rows = [Row(username="=1+1", refusal="-"), Row(username="ada", link="http://x")]
    assert base64.b64decode(as_csv(rows)).decode().splitlines()[1:] == ["'=1+1,,'-", "ada,http://x,"]
