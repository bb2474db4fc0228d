"""`farandole login` checks the hub and the token. The hub here is a stand-in; tests/integration has a real one."""

import io
import sys
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from farandole.exceptions import HubError, HubUnreachableError, PermissionDeniedError
from farandole.login import check, credentials
from farandole.login.__main__ import main

VERSION = {"version": "6"}
ALL = ["access:servers!user=ada", "read:users!user=ada", "servers!user=ada", "users:activity!user=ada"]


@asynccontextmanager
async def hub(scopes=ALL, version=VERSION):
    """Serve the part of a hub's API that a login uses, and yield its address."""

    async def user(request):
        if request.headers.get("Authorization") != "token right":
            return web.json_response({"message": "no"}, status=403)
        return web.json_response({"name": "ada", "scopes": scopes})

    app = web.Application()
    app.router.add_get("/hub/api/", lambda _: web.json_response(version))
    app.router.add_get("/hub/api/user", user)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


async def test_a_right_token_gives_its_user():
    async with hub() as url:
        assert await check.user_of(url, "right") == "ada"


async def test_a_wrong_token_is_refused_with_the_page_that_makes_one():
    async with hub() as url:
        with pytest.raises(PermissionDeniedError, match=rf"refused the token. Make a new one at {url}/hub/token"):
            await check.user_of(url, "wrong")


async def test_a_token_without_scopes_names_those_that_it_lacks():
    async with hub(scopes=["read:users!user=ada"]) as url:
        with pytest.raises(PermissionDeniedError, match=r"lacks the scopes access:servers, servers, so it cannot"):
            await check.user_of(url, "right")


@pytest.mark.parametrize("version", [{}, [], "text"])
async def test_another_web_server_is_not_taken_for_a_hub(version):
    async with hub(version=version) as url:
        with pytest.raises(HubError, match=rf"there is no JupyterHub at {url}"):
            await check.user_of(url, "right")


async def test_an_address_without_an_answer_is_named():
    async with hub() as url:
        pass
    with pytest.raises(HubUnreachableError, match=rf"no hub answers at {url}"):
        await check.user_of(url, "right")


def test_a_failed_login_keeps_nothing_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["login", "http://127.0.0.1:9"]) == 1
    assert "farandole login: there was no token; paste the one" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("token\n"))
    assert main(["login", "http://127.0.0.1:9"]) == 1
    assert "no hub answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert credentials.logins() == {}
    assert main(["logout"]) == 1
    assert "there is no login for any hub" in capsys.readouterr().err
    assert main(["status"]) == 0
    assert "There is no login." in capsys.readouterr().out
