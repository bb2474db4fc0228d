"""Tests that each user gets an origin by default, and that all users share one only if this is set explicitly."""

from types import SimpleNamespace

import pytest
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.origins.application import FarandoleHub
from spawner_config.origins.configure import check_host_first, configure_origins, refuse_login_with_taken_host
from spawner_config.origins.hosts import subdomain_hook
from spawner_config.settings import Settings, SettingsError


def configured(environ, **front):
    c = Config()
    configure_origins(c, Settings.from_environment(environ), **{"https": False, "port": 8000, **front})
    return c


@pytest.mark.parametrize(
    ("environ", "front", "url"),
    [
        ({}, {}, "http://hub.localhost:8000"),
        ({"FARANDOLE_DOMAIN": "hub.example.org"}, {"https": True, "port": 443}, "https://hub.example.org"),
        (
            {"FARANDOLE_DOMAIN": "hub.example.org", "FARANDOLE_ORIGINS": "per-user"},
            {"port": 80},
            "http://hub.example.org",
        ),
    ],
)
def test_each_user_has_an_origin_by_default(environ, front, url):
    hub = configured(environ, **front).JupyterHub
    assert (hub.subdomain_host, hub.subdomain_hook) == (url, subdomain_hook)
    assert hub.cookie_host_prefix_enabled == front.get("https", False)


def test_the_application_takes_the_configuration():
    application = FarandoleHub(config=configured({}))
    assert (application.domain, application.public_url) == ("hub.localhost", "http://hub.localhost:8000/")
    assert application.subdomain_hook("Ada", "hub.localhost", kind="user").endswith(".hub.localhost")


@pytest.mark.parametrize("reached_by", ["FARANDOLE_BIND=0.0.0.0", "FARANDOLE_HTTPS=yes"])
def test_other_machines_reach_no_hub_without_a_domain(reached_by):
    with pytest.raises(SettingsError, match=f"FARANDOLE_DOMAIN is not set, and {reached_by}.*FARANDOLE_ORIGINS=one"):
        configured({}, reached_by=reached_by)
    assert configured({"FARANDOLE_DOMAIN": "hub.test"}, reached_by=reached_by).JupyterHub.subdomain_host


def test_one_origin_needs_the_word_and_shows_the_danger():
    hub = configured({"FARANDOLE_ORIGINS": "one"}, reached_by="FARANDOLE_BIND=0.0.0.0").JupyterHub
    assert "subdomain_host" not in hub
    assert "act as the user who opens it" in hub.template_vars["one_origin"]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("FARANDOLE_ORIGINS", "two", "per-user, one"),
        ("FARANDOLE_DOMAIN", "10.0.0.5", "no IP address"),
        ("FARANDOLE_DOMAIN", "localhost", "point inside"),
    ],
)
def test_a_wrong_setting_is_named(key, value, wanted):
    with pytest.raises(SettingsError, match=f"{key} is '{value}'.*{wanted}"):
        Settings.from_environment({key: value})


def test_the_command_jupyterhub_is_refused():
    JupyterHub.instance()
    try:
        with pytest.raises(SettingsError, match="hub/start.py"):
            configured({})
    finally:
        JupyterHub.clear_instance()
    FarandoleHub.instance()
    try:
        assert configured({}).JupyterHub.subdomain_host
    finally:
        FarandoleHub.clear_instance()


@pytest.fixture
def db(monkeypatch):
    monkeypatch.setattr("spawner_config.origins.hosts.host_label", lambda name, _kind="user": name.strip("_"))
    session = orm.new_session_factory("sqlite:///:memory:")()
    session.add(orm.User(name="ada"))
    session.commit()
    yield session
    session.close()


def test_two_accounts_with_one_host_are_refused_at_the_first_login(db):
    handler = SimpleNamespace(db=db)
    with pytest.raises(HTTPError, match="Another user has the host"):
        refuse_login_with_taken_host(None, handler, {"name": "ADA_"})
    assert refuse_login_with_taken_host(None, handler, {"name": "ada"}) == {"name": "ada"}
    assert refuse_login_with_taken_host(None, handler, {"name": "grace"}) == {"name": "grace"}


async def test_two_accounts_with_one_host_are_refused_at_spawn(db):
    called = []
    checked = check_host_first(called.append)
    with pytest.raises(Exception, match="'ada_' and 'ada' have the same host") as refused:
        await checked(SimpleNamespace(db=db, user=SimpleNamespace(name="ada_")))
    assert refused.value.status_code == 409
    assert called == []
    spawner = SimpleNamespace(db=db, user=SimpleNamespace(name="ada"))
    await checked(spawner)
    assert called == [spawner]
    await check_host_first(None)(spawner)
