"""Tables at URLs: on S3, on file systems of fsspec, and in places that do not exist."""

import io
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import farandole as fd
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from farandole.exceptions import UsageError
from pyarrow import feather


@pytest.fixture
def memory():
    """A file system of fsspec in memory."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


class Store(BaseHTTPRequestHandler):
    """An object store that has one object, and denies access to all others, as S3 does."""

    path_of_object = "/clicks/2026.parquet"
    content = b""
    authorizations: ClassVar = []

    def do_HEAD(self):
        self.authorizations.append(self.headers["Authorization"])
        known = self.path == self.path_of_object
        self.send_response((206 if self.headers["Range"] else 200) if known else 403)
        first, _, last = (self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")
        part = self.content[int(first) : int(last) + 1 if last else None] if known else b""
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(self.content)}")
        self.send_header("Last-Modified", "Mon, 02 Mar 2026 10:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        return part

    def do_GET(self):
        self.wfile.write(self.do_HEAD())

    def log_message(self, *_):
        pass


@pytest.fixture
def store(monkeypatch):
    """The part of a URL that names an object store on this machine."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ada")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    table = io.BytesIO()
    pq.write_table(pa.table({"x": range(1000)}), table)
    Store.content = table.getvalue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"?scheme=http&endpoint_override=127.0.0.1:{server.server_port}&region=us-east-1"
    server.shutdown()
    thread.join()
    server.server_close()


def refused(says, source):
    with pytest.raises(UsageError, match=says):
        fd.dataset(source)


def test_a_file_on_s3_is_copied_to_the_cache(store, cache):
    data = fd.dataset(f"s3://clicks/2026.parquet{store}")
    assert [int(item["x"]) for item in data] == list(range(1000))
    assert len(list(cache.glob("*.arrow"))) == 1
    assert all("Credential=ada/" in one for one in Store.authorizations)


def test_access_to_a_file_on_s3_is_denied(store):
    refused(r"s3://private/.* cannot be read: .*Check the name and your credentials", f"s3://private/x.parquet{store}")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_folder_at_another_url_is_copied_to_the_cache(memory, cache, suffix):
    write = pq.write_table if suffix == "parquet" else feather.write_feather
    for part in range(3):
        with memory.open(f"/bucket/table/{part}.{suffix}", "wb") as file:
            write(pa.table({"x": range(part * 10, part * 10 + 10)}), file)
    data = fd.dataset("memory://bucket/table")
    assert [int(item["x"]) for item in data] == list(range(30))
    assert len(list(cache.glob("*.arrow"))) == 1
    assert len(fd.dataset(f"memory://bucket/table/1.{suffix}")) == 10


def test_a_local_file_has_a_url_too(tmp_path, cache):
    feather.write_feather(pa.table({"x": [1, 2]}), tmp_path / "x.arrow", compression="uncompressed")
    assert len(fd.dataset(f"file://{tmp_path}/x.arrow")) == 2
    assert not cache.exists()


def test_the_environment_names_the_store(store, monkeypatch):
    address = re.search(r"127[\d.:]+", store)[0]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    assert len(fd.dataset("s3://clicks/2026.parquet")) == 1000
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert len(fd.dataset(f"s3://clicks/2026.parquet{store}")) == 1000


def test_names_of_images_in_a_table_at_a_url(memory):
    with memory.open("/bucket/x.parquet", "wb") as file:
        pq.write_table(pa.table({"image": ["a.png"]}), file)
    data = fd.dataset("memory://bucket/x.parquet", images="image")
    with pytest.raises(UsageError, match="a table in an object store must have the bytes of images"):
        data[0]


def test_places_that_do_not_exist(memory):
    refused(r"there is no file or folder memory://bucket/nope\. Check the name", "memory://bucket/nope")
    refused(r"nope://x cannot be opened: Protocol not known: nope\. Install", "nope://x")
    refused("s3:///x is not a valid URL", "s3:///x")


def test_a_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(UsageError, match="the URL of the data has a password") as raised:
        fd.dataset("s3://ada:secret@clicks/2026.parquet")
    assert "secret" not in str(raised.value)
