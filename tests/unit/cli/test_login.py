"""`farandole login` checks the hub and the token. The hub here is a stand-in; tests/integration has a real one."""

import asyncio
import getpass
import io
import os
import ssl
import sys
import webbrowser
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from farandole.cli import check, credentials
from farandole.cli.__main__ import main
from farandole.exceptions import HubError, HubUnreachableError, PermissionDeniedError

VERSION = {"version": "6"}
ALL = ["access:servers!user=ada", "read:users!user=ada", "servers!user=ada", "users:activity!user=ada"]


@asynccontextmanager
async def hub(scopes=ALL, version=VERSION, fails=None, moved=None, text=None, model=None, seen=None):
    """Serve the part of a hub's API that a login uses, and yield its address. ``seen`` gets the sent tokens."""

    async def user(request):
        if request.headers.get("Authorization") != "token right":
            return web.json_response({"message": "no"}, status=403)
        return web.json_response(model or {"name": "ada", "scopes": scopes})

    async def about(request):
        if seen is not None:
            seen.append(request.headers.get("Authorization"))
        if text is not None:
            return web.Response(text=text, content_type="application/json")
        if moved:
            raise web.HTTPFound(moved)
        return web.json_response(version, status=fails or 200)

    app = web.Application()
    app.router.add_get("/hub/api/", about)
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
        with pytest.raises(PermissionDeniedError, match=r"lacks the scopes access:servers, servers, so it") as caught:
            await check.user_of(url, "right")
    words = "under Permissions, enter access:servers!user read:users!user servers!user, and choose when it expires."
    assert str(caught.value).endswith(f"Make one at {url}/hub/token: {words}")


async def test_the_named_permissions_are_enough():
    async with hub(scopes=check.PERMISSIONS.replace("!user", "!user=ada").split()) as url:
        assert await check.user_of(url, "right") == "ada"


@pytest.mark.parametrize("scope", ["servers!server=ada/x", "servers!user=grace"])
async def test_a_scope_for_one_server_or_another_user_is_not_enough(scope):
    async with hub(scopes=["access:servers!user", "read:users", scope]) as url:
        with pytest.raises(PermissionDeniedError, match=r"lacks the scopes servers, so it"):
            await check.user_of(url, "right")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_hub_that_cannot_answer_now_is_not_taken_for_another_server(status):
    async with hub(fails=status) as url:
        with pytest.raises(HubError) as caught:
            await check.user_of(url, "right")
    assert caught.value.status == status


async def test_the_hubs_own_address_is_named():
    async with hub(moved="https://hub.example.org/hub/api/") as url:
        with pytest.raises(HubError, match=rf"does not serve {url}/; its own address is https://hub.example.org. Use"):
            await check.user_of(url, "right")


def make_expired(certificate, key):
    """Write a certificate for localhost that was valid for a day in 2020, and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2020, 1, 2, tzinfo=UTC)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate.write_bytes(builder.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


async def test_an_expired_certificate_is_named(tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_expired(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = TestServer(web.Application(), scheme="https")
    await server.start_server(ssl=context)
    try:
        command = [sys.executable, "-m", "farandole.cli", "login", f"https://localhost:{server.port}"]
        environment = {**os.environ, "SSL_CERT_FILE": str(certificate), "XDG_CONFIG_HOME": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stderr=PIPE, env=environment)
        _, said = await process.communicate(b"token\n")
    finally:
        await server.close()
    assert process.returncode == 1
    assert "the certificate of localhost is not valid: certificate has expired. Ask the hub's operator" in said.decode()


@pytest.mark.parametrize(
    "answer", [{"version": {}}, {"version": []}, {"version": "text"}, {"text": "no JSON"}, {"model": [1]}]
)
async def test_another_web_server_is_not_taken_for_a_hub(answer):
    async with hub(**answer) as url:
        with pytest.raises(HubError, match=rf"there is no JupyterHub at {url}"):
            await check.user_of(url, "right")


async def test_no_token_is_sent_before_a_hub_has_answered():
    seen = []
    async with hub(version={}, seen=seen) as url:
        with pytest.raises(HubError, match="there is no JupyterHub"):
            await check.user_of(url, "right")
    assert seen == [None]


async def test_a_server_without_https_is_named():
    async with hub() as url:
        with pytest.raises(HubUnreachableError, match="does not answer with https .* begins with http://"):
            await check.check_hub(url.replace("http:", "https:"))


async def test_an_address_without_an_answer_is_named():
    async with hub() as url:
        pass
    with pytest.raises(HubUnreachableError, match=rf"no hub answers at {url}"):
        await check.user_of(url, "right")


class Terminal(io.StringIO):
    """A terminal in which the user types."""

    def isatty(self):
        return True


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def served(monkeypatch, config):
    """Return a function that logs in at a hub with what the standard input contains."""

    async def login(said, **options):
        monkeypatch.setattr(sys, "stdin", said)
        async with hub(**options) as url:
            return url, await asyncio.to_thread(main, ["login", url])

    return login


async def test_a_token_from_a_pipe_is_kept_and_never_shown(served, capsys):
    url, status = await served(io.StringIO("  right\nmore\n"))
    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    assert said.out == f"Logged in at {url} as ada. In a notebook: %cluster start --hub {url}\n"
    assert credentials.logins()[url].token == "right"


async def test_a_terminal_is_asked_after_the_page_that_makes_a_token_is_opened(served, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(getpass, "getpass", lambda _: "right")
    url, status = await served(Terminal())
    assert (status, opened) == (0, [f"{url}/hub/token"])
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == [
        f"Make a token at {url}/hub/token",
        "  Permissions: access:servers!user read:users!user servers!user",
        "  Token expires in: choose a time, e.g. 1 Month",
        "Paste it here. It is not shown.",
    ]
    assert credentials.logins()[url].user == "ada"


async def test_an_address_without_a_hub_is_named_before_a_token_is_asked_for(served, capsys, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", pytest.fail)
    _, status = await served(Terminal(), version={})
    assert status == 1
    assert "there is no JupyterHub at" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["two words", "t\u00f6k\u00e4n", "a\x00b", "\udcff"])
async def test_what_cannot_be_a_token_is_refused_and_not_repeated(served, capsys, said):
    _, status = await served(io.StringIO(f"{said}\n"))
    found = capsys.readouterr().err
    assert status == 1
    assert "this is not a token, because it has spaces or special characters; copy the one" in found
    assert said not in found


async def test_bytes_that_are_no_text_are_no_token(served, capsys):
    _, status = await served(io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert status == 1
    assert "this is not a token" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["\n", ""])
async def test_a_login_without_a_token_says_how_to_give_one(served, capsys, said):
    _, status = await served(io.StringIO(said))
    assert status == 1
    assert "farandole login: there was no token; paste the one" in capsys.readouterr().err


async def test_ctrl_c_ends_the_command(served, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", lambda _: True)
    monkeypatch.setattr(getpass, "getpass", interrupt)
    assert (await served(Terminal()))[1] == 130
    assert credentials.logins() == {}


async def test_status_and_logout(served, capsys):
    url, _ = await served(io.StringIO("right\n"))
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["status"]) == 0
    assert capsys.readouterr().out.startswith(f"{url}  ada  no hub answers at {url}")
    assert main(["logout", url]) == 0
    assert capsys.readouterr().out.startswith(
        f"Logged out at {url}. The token stays valid until you revoke it at {url}"
    )
    assert credentials.logins() == {}


def test_a_token_that_others_can_read_on_its_way_is_named(config, capsys, monkeypatch):
    async def accept(_url, _token=""):
        return "ada"

    monkeypatch.setattr(check, "check_hub", accept)
    monkeypatch.setattr(check, "user_of", accept)
    for url, warned in [("http://hub.example.org", True), ("https://hub.example.org", False)]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("right\n"))
        assert main(["login", url]) == 0
        assert ("is not encrypted, so others in the network can read the token" in capsys.readouterr().err) is warned


def test_a_failed_login_keeps_nothing_and_says_why(config, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("token\n"))
    assert main(["login", "http://127.0.0.1:9"]) == 1
    assert "no hub answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert credentials.logins() == {}
    assert main(["logout"]) == 1
    assert "there is no login for any hub" in capsys.readouterr().err
    assert main(["status"]) == 0
    assert "There is no login." in capsys.readouterr().out
