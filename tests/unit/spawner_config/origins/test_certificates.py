"""Tests that Caddy obtains certificates only for the hosts of the hub and of its users."""

from contextlib import asynccontextmanager

import aiohttp
import pytest
from jupyterhub import orm
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from spawner_config.origins.certificates import PATH, CertificateHandler
from spawner_config.origins.hosts import subdomain_hook

TOKEN = "ab" * 32
DOMAIN = "hub.example.org"


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("CONFIGPROXY_AUTH_TOKEN", TOKEN)


@asynccontextmanager
async def hub(*, users=True):
    db = orm.new_session_factory("sqlite:///:memory:")()
    db.add_all([orm.User(name="ada"), orm.User(name="Grace Hopper")])
    db.commit()
    listener, port = bind_unused_port()
    server = HTTPServer(Application([(PATH, CertificateHandler, {"domain": DOMAIN, "users": users})], db=db))
    server.add_socket(listener)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        server.stop()
        await server.close_all_connections()
        db.close()


async def answer(domain, token=TOKEN, *, users=True, **headers):
    async with (
        hub(users=users) as session,
        session.get(PATH, params={"domain": domain, "token": token}, headers=headers) as got,
    ):
        return got.status


@pytest.mark.parametrize(
    "host", [DOMAIN, f"ada.{DOMAIN}", f"ADA.{DOMAIN}", subdomain_hook("Grace Hopper", DOMAIN, "user")]
)
async def test_the_hosts_of_the_hub_and_of_its_users(host):
    assert await answer(host) == 204


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        f"nobody.{DOMAIN}",
        f"x.ada.{DOMAIN}",
        f"ada.{DOMAIN}.evil.test",
        "ada.evil.test",
        f"grace hopper.{DOMAIN}",
        subdomain_hook("Nobody Here", DOMAIN, "user"),
        f".{DOMAIN}",
    ],
)
async def test_no_other_host(host):
    assert await answer(host) == 404


async def test_with_one_origin_only_the_hubs_host():
    assert await answer(DOMAIN, users=False) == 204
    assert await answer(f"ada.{DOMAIN}", users=False) == 404


@pytest.mark.parametrize("refused", [{"token": "cd" * 32}, {"X-Forwarded-For": "10.0.0.7"}])
async def test_nobody_else_makes_the_hub_search_its_users(monkeypatch, refused):
    searched = []
    monkeypatch.setattr("spawner_config.origins.certificates.is_users_host", lambda *given: searched.append(given))
    assert await answer(f"ada.{DOMAIN}", **refused) == 404
    assert searched == []


async def test_nobody_else_learns_who_has_an_account(monkeypatch):
    assert await answer(f"ada.{DOMAIN}", token="") == 404
    assert await answer(f"ada.{DOMAIN}", token="cd" * 32) == 404
    assert await answer(f"ada.{DOMAIN}", **{"X-Forwarded-For": "10.0.0.7"}) == 404
    monkeypatch.setenv("CONFIGPROXY_AUTH_TOKEN", "")
    assert await answer(f"ada.{DOMAIN}", token="") == 404
