"""Tests for the configuration of the operators' service, and for the notices that users see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from spawner_config.operators.configure import SCOPES, NoticesOfUser, OperatorSettings, configure_operators
from spawner_config.operators.handlers import server_rules
from spawner_config.operators.notices import MOST, MOST_CHARACTERS, Notice, Notices
from spawner_config.operators.site import Site, Size, memory_bytes
from spawner_config.pages import TEMPLATES
from spawner_config.profiles.profiles import parse_profiles
from spawner_config.settings import Settings, SettingsError

BASE = {"templates/page.html": "{% block nav_bar_left_items %}{% endblock %}{% block announcement %}{% endblock %}"}
"""The page of JupyterHub that the hub's pages extend, with their blocks alone."""
TOKEN = "0123456789abcdef" * 4
NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
PROFILES = parse_profiles(
    {"profile": [{"name": "cpu", "description": "x", "ranks": 2}, {"name": "big", "description": "x", "memory": "8G"}]}
)


def configured(tmp_path: Path, c: Any = None, **options: Any) -> Any:
    c = Config() if c is None else c
    where = {"url": "http://127.0.0.1:20001", "bind": "127.0.0.1"}
    configure_operators(c, Settings(state=tmp_path), PROFILES, **where, **options)
    return c.JupyterHub


def test_the_service_has_minimal_scopes(tmp_path: Path) -> None:
    hub = configured(tmp_path)
    ours, access = hub.load_roles
    assert (ours["services"], ours["scopes"]) == (["operators"], SCOPES)
    assert set(SCOPES) == {"list:users", "read:users:activity", "read:servers", "delete:servers"}
    assert access["scopes"] == ["access:services!service=operators"]
    assert (access["groups"], access["users"]) == (["operators"], [])
    [service] = hub.services
    assert "admin" not in service


def test_the_settings_name_operators_and_the_token_of_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARANDOLE_OPERATORS", "ada, grace ,")
    monkeypatch.setenv("FARANDOLE_METRICS_TOKEN", TOKEN)
    c = Config()
    hub = configured(tmp_path, c)
    assert c.AccountAuthenticator.operators == ["ada", "grace"]
    assert [role.get("users") for role in hub.load_roles] == [None, ["ada", "grace"], None]
    assert hub.services[1] == {"name": "prometheus", "api_token": TOKEN}
    assert hub.load_roles[2]["scopes"] == ["read:metrics"]


@pytest.mark.parametrize("token", ["short", "0" * 64])
def test_a_weak_token_of_the_metrics_is_refused(token: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_METRICS_TOKEN is too weak: it .*openssl"):
        OperatorSettings.from_environment({"FARANDOLE_METRICS_TOKEN": token})


def test_what_others_have_configured_stays(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "other"}]
    c.JupyterHub.template_vars = {"announcement": "x"}
    c.JupyterHub.extra_handlers = c.JupyterHub.overriding_handlers = [("/other", object)]
    hub = configured(tmp_path, c)
    assert [each["name"] for each in hub.services] == ["other", "operators"]
    assert [path for path, *_ in hub.extra_handlers] == ["/other", "/api/farandole/notices"]
    assert [path for path, *_ in hub.overriding_handlers] == [
        "/other",
        *(path for path, *_ in server_rules(Notices(tmp_path))),
    ]
    assert hub.template_vars["announcement"] == "x"


def test_the_command_jupyterhub_warns_that_users_are_not_told_of_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configured(tmp_path)
    assert caplog.text == ""
    JupyterHub.instance()
    try:
        configured(tmp_path)
    finally:
        JupyterHub.clear_instance()
    assert "does not tell users who stopped their servers at /hub/admin" in caplog.text


@pytest.mark.parametrize(
    ("options", "memory"), [({"memory": "4G"}, [4 << 30, 8 << 30]), ({"local": True}, [None, None])]
)
def test_the_service_learns_the_sizes_of_servers(tmp_path: Path, options: dict[str, Any], memory: list[Any]) -> None:
    site = Site.from_environment(configured(tmp_path, **options).services[0]["environment"])
    assert [size.memory for size in site.profiles.values()] == memory
    assert site.profiles["cpu"] == Size(ranks=2, gpus=0, memory=memory[0])
    assert (site.state, site.limits["workers_per_user"], site.secure) == (tmp_path, 16, False)


def test_cookies_are_secure_where_those_of_the_hub_are(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.tornado_settings = {"cookie_options": {"secure": True}}
    assert Site.from_environment(configured(tmp_path, c).services[0]["environment"]).secure


def test_memory_in_bytes() -> None:
    assert [memory_bytes(text) for text in ("512K", "512M", "4G", "1T")] == [512 << 10, 512 << 20, 4 << 30, 1 << 40]


def test_a_notice_says_who_did_what_and_why(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    assert notices.of("ada") == []
    notices.add("ada", Notice(by="olga", at=NOW, text="Too long.", servers=("", "main-w0")))
    notices.add("ada", Notice(by="olga", at=NOW, text="Hello."))
    notices.add("ada", Notice(by="olga", at=NOW, text="", servers=("main-w0",)))
    assert [notice.sentence for notice in notices.of("ada", NOW)] == [
        "olga stopped your notebook server, the server main-w0. Reason: Too long.",
        "message from olga: Hello.",
        "olga stopped the server main-w0. Reason: none given.",
    ]
    assert {notice.when for notice in notices.of("ada", NOW)} == {"2026-05-01 12:30 UTC"}
    assert notices.of("Ada", NOW) == []


def test_the_time_of_a_notice_is_in_utc() -> None:
    at = datetime(2026, 5, 2, 1, 0, tzinfo=timezone(timedelta(hours=7)))
    assert Notice(by="olga", at=at, text="Hello.").when == "2026-05-01 18:00 UTC"


def test_notices_are_few_short_and_not_kept_forever(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    for number in range(MOST + 5):
        notices.add("../x", Notice(by="olga", at=NOW + timedelta(minutes=number), text=f"{number} " + "x" * 999))
    kept = notices.of("../x", NOW + timedelta(hours=1))
    assert [notice.text.split()[0] for notice in kept] == [str(number) for number in range(5, MOST + 5)]
    assert {len(notice.text) for notice in kept} == {MOST_CHARACTERS}
    assert notices.of("../x", NOW + timedelta(days=8)) == []
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "notices"]


def test_a_notice_is_corrected_if_servers_did_not_stop(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    wrong, right = (Notice(by="olga", at=NOW, text=text, servers=("", "main-w0")) for text in ("Bye.", "Hello."))
    notices.add("ada", wrong)
    notices.add("ada", right)
    notices.correct("ada", wrong, ("main-w0",))
    assert [notice.servers for notice in notices.of("ada", NOW)] == [("main-w0",), right.servers]
    notices.correct("ada", right, ())
    assert [notice.text for notice in notices.of("ada", NOW)] == ["Bye."]


@pytest.mark.parametrize(
    "damaged",
    ["", "[", "5", "[1]", "[{}]", '[{"at": "soon"}]', '[{"at": "2026-05-01T12:30:00", "servers": []}]', "\xff"],
)
def test_a_damaged_file_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: str) -> None:
    notices = Notices(tmp_path)
    notices.add("ada", Notice(by="olga", at=NOW, text="Hello."))
    [path] = tmp_path.rglob("*.json")
    path.write_bytes(damaged.encode("latin-1"))
    assert NoticesOfUser(notices)(SimpleNamespace(name="ada", created=None)) == []
    assert f"The notices for 'ada' are damaged, and now in {path.with_suffix('.old')}" in caplog.text
    assert path.with_suffix(".old").read_bytes() == damaged.encode("latin-1")
    notices.add("ada", Notice(by="olga", at=NOW, text="Hello again."))
    assert [notice.text for notice in notices.of("ada", NOW)] == ["Hello again."]


def test_a_file_that_cannot_be_read_is_not_shown_and_not_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notices = Notices(tmp_path)
    notices.add("ada", Notice(by="olga", at=NOW, text="Hello."))
    [path] = tmp_path.rglob("*.json")
    path.unlink()
    path.mkdir()
    assert notices.of("ada", NOW) == []
    assert "The notices for 'ada' are not shown" in caplog.text
    with pytest.raises(OSError, match="directory"):
        notices.add("ada", Notice(by="olga", at=NOW, text="Hello again."))


def page(notices: list[Notice]) -> str:
    """Return the announcements of one of the hub's pages."""
    pages = Environment(autoescape=True, loader=ChoiceLoader([FileSystemLoader(TEMPLATES), DictLoader(BASE)]))
    return pages.get_template("page.html").render(notices=notices, user=object())


def test_the_hubs_pages_show_a_users_notices_as_text(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    now = datetime.now(UTC)
    notices.add("ada", Notice(by="olga", at=now - timedelta(hours=1), text="Old."))
    notices.add("ada", Notice(by="<i>olga</i>", at=now, text="<script>&"))
    shown = NoticesOfUser(notices)
    assert shown(None) == shown(SimpleNamespace(name="grace", created=None)) == []
    # Requests with the token of a service have a service in place of a user.
    assert shown(SimpleNamespace(name="prometheus")) == []
    text = page(shown(SimpleNamespace(name="ada", created=None)))
    assert "message from &lt;i&gt;olga&lt;/i&gt;: &lt;script&gt;&amp;<br>" in text
    assert text.index("olga&lt;/i&gt;") < text.index("message from olga: Old.\n")


def test_browsers_show_the_time_of_a_notice_in_their_own_zone() -> None:
    text = page([Notice(by="olga", at=NOW, text="Hello.")])
    time = '<time datetime="2026-05-01T12:30Z" title="2026-05-01 12:30 UTC">2026-05-01 12:30 UTC</time>'
    assert f"{time}: message from olga: Hello." in text
    assert text.index(time) < text.index("time.textContent = ")
    assert "time.textContent" not in page([])


@pytest.mark.parametrize("zone", [None, UTC])
def test_a_new_user_does_not_see_the_notices_of_a_deleted_one_of_the_same_name(tmp_path: Path, zone: Any) -> None:
    notices, now = Notices(tmp_path), datetime.now(UTC)
    notices.add("ada", Notice(by="olga", at=now - timedelta(minutes=2), text="For the first."))
    notices.add("ada", Notice(by="olga", at=now, text="For the second."))
    ada = SimpleNamespace(name="ada", created=(now - timedelta(minutes=1)).replace(tzinfo=zone))
    assert [notice.text for notice in NoticesOfUser(notices)(ada)] == ["For the second."]


@pytest.mark.parametrize("one_origin", [False, True])
def test_the_page_warns_of_one_origin(tmp_path: Path, one_origin: bool) -> None:
    c = Config()
    where = {"url": "http://127.0.0.1:20001", "bind": "127.0.0.1"}
    configure_operators(c, Settings(state=tmp_path, one_origin=one_origin), PROFILES, **where)
    site = Site.from_environment(c.JupyterHub.services[0]["environment"])
    assert ("act as the user who opens it" in site.danger) == one_origin
