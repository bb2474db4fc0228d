"""Tests for mirrors of versions from a real notebook server."""

import asyncio

import pytest
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.mirror import mirror
from farandole.datasets.versions.mounted import variables
from farandole.datasets.versions.names import parse_version
from farandole.datasets.versions.sources import ROUTE, ServerSource, encode
from farandole.exceptions import DataSetError
from farandole.server.activity import last_use
from jupyter_server._tz import utcnow

from tests.panel import PAGE_TOKEN, panel_server

DIGITS = parse_version("digits@2")


@pytest.fixture
def version(tmp_path, monkeypatch):
    """A version that the server has. One file needs several chunks."""
    (tmp_path / "source").mkdir()
    (tmp_path / "secret.txt").write_text("not for others")
    for name, content in (("a.txt", b"42"), ("empty", b""), ("new\nline", b"1"), ("large.bin", b"x" * 2_500_000)):
        (tmp_path / "source" / name).write_bytes(content)
    (tmp_path / "version").mkdir()
    copy_version(tmp_path / "source", tmp_path / "version")
    for key, value in variables({"digits@2": str(tmp_path / "version")}).items():
        monkeypatch.setenv(key, value)
    return tmp_path / "version"


@pytest.fixture
async def server(tmp_path, monkeypatch, version):
    async with panel_server(tmp_path, monkeypatch) as server:
        yield server


def source_of(server, *, version=DIGITS, token=PAGE_TOKEN):
    return ServerSource(server.url.removesuffix("/farandole/panel/"), version, token)


async def test_a_mirror_is_equal(server, version, tmp_path):
    (tmp_path / "mirror").mkdir()
    done = await asyncio.to_thread(mirror, source_of(server), tmp_path / "mirror")
    assert done.copied == 4
    assert done.digest == verify(tmp_path / "mirror") == verify(version)


async def test_a_server_is_in_use_while_a_mirror_reads_from_it(server, tmp_path):
    (tmp_path / "mirror").mkdir()
    before = utcnow()
    assert used(server) <= before
    await asyncio.to_thread(mirror, source_of(server), tmp_path / "mirror")
    assert used(server) > before


def used(server):
    return last_use(server.app.kernel_manager, server.app.web_app.settings)


async def test_a_version_that_the_server_lacks_is_named(server, tmp_path):
    source = source_of(server, version=parse_version("digits@3"))
    with pytest.raises(DataSetError, match=r"does not have digits@3; `%dataset` shows"):
        await asyncio.to_thread(mirror, source, tmp_path)


async def test_a_wrong_token_is_explained(server, tmp_path):
    with pytest.raises(DataSetError, match="admits the token in FARANDOLE_MIRROR_TOKEN"):
        await asyncio.to_thread(mirror, source_of(server, token="wrong"), tmp_path)


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "missing", "", "a\0b"])
async def test_files_outside_of_a_version_are_not_sent(server, path):
    base = server.url.removesuffix("/farandole/panel/")
    name = encode(path) or "!"
    headers = {"Authorization": f"token {PAGE_TOKEN}"}
    async with server.session.get(f"{base}/{ROUTE}/digits@2/files/{name}", headers=headers) as answer:
        assert answer.status == 404
        assert "not for others" not in await answer.text()
