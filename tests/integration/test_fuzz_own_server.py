"""Fuzz tests with random run folders, requests and messages. The server must always respond and not leak memory.

`make test` runs the same 200 cases every time. The tests marked `release` run 10,000 cases.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import requests
import websocket
from farandole.driver.control.mailbox import MAILBOXES, driver_statuses
from farandole.driver.recovery.orphaned_runs import complete
from farandole.exceptions import RunNotFoundError
from farandole.frames import PROTOCOL
from farandole.notebook.listing import RunList
from farandole.protocol import RUN_MARK
from farandole.runs.checkpoints.found import checkpoints_of
from farandole.runs.store import RunStore
from farandole.server.worker.args import WORKER_ARGS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tornado.testing import bind_unused_port

from tests.strange import BAD, FILES, GOOD, RECORD, REPORT, replaced, write_run

SECONDS = 20
"""Time limit for each response, in seconds."""
MEMORY = 100_000_000
"""Maximum growth of a server's memory during all cases, in bytes."""
WARM_UP = 5
SHARES = [pytest.param(1, id="ci"), pytest.param(50, id="release", marks=[pytest.mark.release])]
"""Factors by which the tests multiply their numbers of cases, which add up to 200."""

pytestmark = pytest.mark.timeout(3600)

TEXT = st.text(max_size=8) | st.sampled_from(["", "\0", "\x1b[2J", "\ud800", "../..", GOOD, BAD, "a" * 5_000])
NUMBER = st.integers() | st.floats() | st.sampled_from([10**300, -(10**300), 2**63, 1e308, -1, 0])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
BYTES = st.binary(max_size=64) | VALUE.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 50_000)
CELLS = st.sampled_from(FILES[:6]) | BYTES
VIEW_KEYS = (
    "id", "ended", "notices", "warnings", "series", "ranks", "progress", "elapsed", "size", "reports", "output_bytes",
    "sync",
)  # fmt: skip


def changed(record: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return a strategy for lines of JSON, each of which is the record with some random values."""
    changes = st.dictionaries(st.sampled_from(sorted(record)) | TEXT, VALUE, max_size=3)
    return changes.map(lambda change: json.dumps({**record, **change}).encode() + b"\n")


DESK = {
    "cluster": "main", "local": True, "backend": "torch", "notebook": "", "kernel": "k", "busy": False, "driver": {},
    "since": 1.0, "workers": ["w"], "ranks": [["w", 0, True]], "runs": [], "wanted": None, "error": None,
    "dask": {
        "tasks": 1, "done": 1, "failed": 0, "workers": {
            "w": {
                "running": 1, "waiting": 2, "done": 3, "memory": 4, "memory_limit": 5, "spilled": 6, "paused": None,
            },
        },
    },
}  # fmt: skip
JOURNAL = {
    "run": BAD, "kernel": "k", "rank": 0, "requests": {"m": "cell"}, "ended": 1.0, "led": False, "count": 1,
    "about": {"run": RECORD, "code": "", "folder": "", "elastic": None}, "worker": "w",
}  # fmt: skip
MANIFEST = {"step": 1, "time": 1.0, "bytes": 1}
POSITIONS = {"kernels": {"k": 1}, "sizes": {"metrics/rank-0.jsonl": 5}}
FOLDERS = st.fixed_dictionaries(
    {
        "run.json": st.just(json.dumps(RECORD).encode())
        | changed(RECORD)
        | changed({**RECORD, "status": "running"})
        | CELLS
    },
    optional={
        "view.json": changed(dict.fromkeys(VIEW_KEYS)) | CELLS,
        "lines.json": CELLS,
        "notes.json": changed({"name": "n", "tags": ["t"], "notes": "words"}) | CELLS,
        "positions.json": changed(POSITIONS) | CELLS,
        "code.py": CELLS,
        "metrics/rank-0.jsonl": changed(REPORT) | CELLS,
        "metrics/rank-²a.jsonl": CELLS,
        "usage/rank-0.jsonl": changed({"kind": "usage", "cpu_percent": 1.0, "memory_bytes": 1}) | CELLS,
        "logs/rank-0.log": CELLS,
        "checkpoints/step-1/manifest.json": changed(MANIFEST) | CELLS,
        "records/k.json": changed(JOURNAL) | CELLS,
        "records/k.frames": CELLS,
        f"../{MAILBOXES}/0123456789abcdef/desk.json": changed(DESK) | CELLS,
    },
)
SEGMENT = TEXT.filter(bool).map(lambda text: quote(text.encode("utf-8", "replace"), safe=""))
QUERY = st.dictionaries(
    st.sampled_from(["offset", "limit", "by_rank", "text", "status", "tag", "sort", "column"]),
    TEXT | NUMBER.map(str),
    max_size=3,
)
PANEL = st.sampled_from(["state", "runs", "clusters", "table"]) | st.builds(
    "{}/{}{}".format,
    st.sampled_from(["runs", "clusters"]),
    SEGMENT | st.just(GOOD),
    st.sampled_from(["", "/series", "/csv", "/logs/0", "/logs/" + "9" * 300, "/stop", "/workers/w/log"]),
)
WORKER = st.sampled_from(["page", "worker", "look", "log", "rendezvous", "records"]) | st.builds(
    "records/{}/{}".format, SEGMENT, SEGMENT
)
METHOD = st.sampled_from(["GET", "GET", "POST", "PATCH", "DELETE"])
LOG = st.fixed_dictionaries(
    {"run": TEXT | st.just(GOOD), "rank": NUMBER | VALUE, "worker": st.none() | TEXT, "offset": NUMBER}
)
WATCH = st.fixed_dictionaries(
    {"kind": st.just("watch"), "seen": st.booleans() | VALUE},
    optional={
        "runs": st.lists(TEXT | st.just(GOOD), max_size=3) | VALUE,
        "followed": st.lists(TEXT | st.just(GOOD), max_size=3) | VALUE,
        "by_rank": st.booleans() | VALUE,
        "logs": st.lists(LOG, max_size=3) | VALUE,
    },
)
MARKS = st.fixed_dictionaries(
    {},
    optional={
        "part": st.sampled_from(["begin", "cell", "end"]) | VALUE,
        "run": TEXT | VALUE,
        "rank": NUMBER,
        "about": VALUE,
    },
)
HEADER = st.just({"msg_id": "1", "msg_type": "comm_open", "session": "1", "username": "", "version": "5.3"})
PARTS = st.tuples(HEADER | VALUE, st.just({}) | VALUE, MARKS.map(lambda mark: {RUN_MARK: mark}) | VALUE, VALUE)


def v1(channel: str, parts: tuple[Any, ...], offsets: list[int] | None) -> bytes:
    """Return a frame of Jupyter's websocket protocol v1 with the given offsets, or with the correct ones if None."""
    texts = [channel.encode("utf-8", "replace"), *(json.dumps(part).encode() for part in parts)]
    first = 8 * (len(texts) + 2)
    own = [first + sum(map(len, texts[:place])) for place in range(len(texts) + 1)]
    head = [len(own), *own] if offsets is None else offsets
    return b"".join(number.to_bytes(8, "little") for number in head) + b"".join(texts)


OFFSETS = st.lists(st.integers(0, 200) | st.sampled_from([2**24, 2**31, 2**63, 2**64 - 1]), max_size=8)
V1 = st.builds(v1, st.sampled_from(["shell", "control", "stdin", "iopub", ""]), PARTS, st.none() | OFFSETS) | BYTES
LEGACY = (
    VALUE.map(json.dumps)
    | PARTS.map(
        lambda parts: json.dumps(dict(zip(("header", "parent_header", "metadata", "content"), parts, strict=True)))
    )
    | BYTES
)


class Server:
    """A Jupyter server with Farandole's extension in a separate process, and an authenticated HTTP session."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.runs = folder / "runs"
        write_run(self.runs)
        listener, port = bind_unused_port()
        listener.close()
        self.url = f"127.0.0.1:{port}/"
        self.token = secrets.token_hex(16)
        own = {"JUPYTER_TOKEN": self.token, "JUPYTER_NO_CONFIG": "1", "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
        module = "farandole.server.worker" if kind == "worker" else "jupyter_server"
        extension = "--ServerApp.jpserver_extensions={'farandole.server.notebook': True}"
        arguments = WORKER_ARGS if kind == "worker" else [extension]
        command = [sys.executable, "-m", module, f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--ServerApp.root_dir={folder}", *arguments],
                env={**os.environ, **own, "FARANDOLE_RUNS": str(self.runs)},
                stdout=log,
                stderr=log,
            )
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"token {self.token}"
        self.cases, self.memory = 0, 0
        self._wait()
        self.kernel = self.ask("POST", "api/kernels", data=b"{}").json()["id"]

    def _wait(self) -> None:
        give_up = time.monotonic() + 6 * SECONDS
        while time.monotonic() < give_up:
            try:
                self.ask("GET", "api")
            except requests.ConnectionError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.1)
            else:
                return
        raise AssertionError(self.log.read_text())

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request, and check that the response arrives in time and is not a server error."""
        answer = self.session.request(method, f"http://{self.url}{path}", timeout=SECONDS, **options)
        assert answer.status_code < 500, f"{method} {path}: {answer.text}\n{self.log.read_text()[-3000:]}"
        return answer

    def socket(self, path: str, *protocols: str) -> Any:
        """Open an authenticated websocket to the server."""
        header = [f"Authorization: token {self.token}"]
        return websocket.create_connection(
            f"ws://{self.url}{path}", timeout=SECONDS, header=header, subprotocols=protocols or None
        )

    @contextmanager
    def case(self) -> Iterator[None]:
        """Check at the end of this context that the server's memory has not grown too much since the first cases."""
        yield
        self.cases += 1
        resident = psutil.Process(self.process.pid).memory_info().rss
        if self.cases <= WARM_UP:
            self.memory = max(self.memory, resident)
        assert resident - self.memory < MEMORY, f"{resident / 1e6:.0f} MB after {self.cases} cases"

    def stop(self) -> None:
        """Stop the server's process, which also stops its kernel."""
        self.session.close()
        self.process.terminate()
        self.process.wait(SECONDS)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("notebook", tmp_path_factory.mktemp("notebook"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("worker", tmp_path_factory.mktemp("worker"))
    yield server
    server.stop()


def fuzz(cases: int, check: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """Call ``check`` with up to ``cases`` examples of the strategies. The examples are the same in every test run."""
    limits = settings(
        max_examples=cases, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    limits(given(*strategies)(check))()


def good_runs(page: dict[str, Any]) -> list[str]:
    return [run["id"] for run in page["runs"] if run["id"] == GOOD and run["error"] is None]


def fill(folder: Path, content: dict[str, Any]) -> None:
    for name, cell in content.items():
        path = (folder / name).resolve() if name.startswith("..") else folder / name
        make = cell if callable(cell) else lambda place, data=cell: place.write_bytes(data)
        replaced(make, path)


def read_in_the_kernel(runs: Path) -> None:
    """Read a store with all functions that a notebook's kernel uses. Only a RunNotFoundError may be raised."""
    store = RunStore(runs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        complete(store)
        listed = store.list()
        assert GOOD in [info.id for info in listed]
        assert repr(RunList(listed))
        assert store.load(GOOD).dataframe()["loss"].tolist() == [0.5]
        checkpoints_of(runs / BAD)
        driver_statuses(runs)
        with suppress(RunNotFoundError):
            store.load(BAD).dataframe()


@pytest.mark.parametrize("share", SHARES)
def test_any_run_folder_ends_in_a_message_for_that_run(notebook: Server, share: int) -> None:
    def check(content: dict[str, Any]) -> None:
        with notebook.case():
            try:
                fill(notebook.runs / BAD, content)
                page = notebook.ask("GET", "farandole/panel/runs").json()
                assert good_runs(page) == [GOOD]
                [bad] = [run for run in page["runs"] if run["id"] == BAD]
                for path in ("", "?by_rank=1", "/csv", "/logs/0?offset=-5"):
                    answer = notebook.ask("GET", f"farandole/panel/runs/{BAD}{path}")
                    assert answer.ok or answer.json()["message"]
                detail = notebook.ask("GET", f"farandole/panel/runs/{BAD}")
                # The list contains the beginning of a long message.
                assert detail.ok or detail.json()["message"].startswith(bad["error"].removesuffix("…"))
                assert notebook.ask("GET", f"farandole/panel/runs/{GOOD}").ok
                assert good_runs(notebook.ask("GET", "farandole/panel/runs?text=20260101").json()) == [GOOD]
                assert good_runs(notebook.ask("GET", "farandole/panel/state").json()["runs"]) == [GOOD]
                for column in ("started", "bytes", "name", "config.lr", "series.loss.last"):
                    assert good_runs(notebook.ask("GET", f"farandole/panel/table?sort={column}").json()) == [GOOD]
                answer = notebook.ask("PATCH", f"farandole/panel/runs/{BAD}", json={"tags": ["t"]})
                assert answer.ok or answer.json()["message"]
                read_in_the_kernel(notebook.runs)
            finally:
                shutil.rmtree(notebook.runs / BAD)
                shutil.rmtree(notebook.runs / MAILBOXES, ignore_errors=True)

    fuzz(70 * share, check, FOLDERS)


@pytest.mark.parametrize("share", SHARES)
def test_any_request_to_the_panel_gets_an_answer(notebook: Server, share: int) -> None:
    def check(method: str, path: str, query: dict[str, str], body: bytes) -> None:
        with notebook.case():
            options: dict[str, Any] = {} if method == "GET" else {"data": body}
            notebook.ask(method, f"farandole/panel/{path}", params=_encoded(query), **options)
            deleted = method == "DELETE" and path == f"runs/{GOOD}"
            assert good_runs(notebook.ask("GET", "farandole/panel/runs").json()) == ([] if deleted else [GOOD])
            if deleted:
                write_run(notebook.runs)

    fuzz(40 * share, check, METHOD, PANEL, QUERY, BYTES)


@pytest.mark.parametrize("share", SHARES)
def test_any_request_to_a_worker_gets_an_answer(worker: Server, share: int) -> None:
    def check(method: str, path: str, query: dict[str, str], body: bytes) -> None:
        with worker.case():
            options: dict[str, Any] = {} if method == "GET" else {"data": body}
            worker.ask(
                method, f"farandole/{path}", params=_encoded({**query, "after": query.get("limit", "0")}), **options
            )
            assert worker.ask("GET", "farandole/look").ok

    fuzz(20 * share, check, METHOD, WORKER, QUERY, BYTES)


@pytest.mark.parametrize("share", SHARES)
def test_any_message_on_the_panels_stream_leaves_it_open(notebook: Server, share: int) -> None:
    last = {"kind": "watch", "seen": True, "runs": [GOOD], "by_rank": False, "logs": []}
    with closing(notebook.socket("farandole/panel/events")) as stream:

        def check(message: Any) -> None:
            with notebook.case():
                stream.send(
                    message if isinstance(message, bytes) else json.dumps(message),
                    2 if isinstance(message, bytes) else 1,
                )
                stream.send(json.dumps({**last, "runs": []}))
                stream.send(json.dumps(last))
                while json.loads(stream.recv())["kind"] != "run":
                    pass

        fuzz(30 * share, check, WATCH | VALUE | BYTES)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", ["notebook", "worker"])
@pytest.mark.parametrize("protocol", [PROTOCOL, ""])
def test_any_frame_on_a_kernels_websocket_leaves_the_server_alive(
    request: pytest.FixtureRequest, kind: str, protocol: str, share: int
) -> None:
    server: Server = request.getfixturevalue(kind)

    def check(frame: bytes | str) -> None:
        with server.case():
            with closing(
                server.socket(f"api/kernels/{server.kernel}/channels", *([protocol] if protocol else []))
            ) as socket:
                socket.send(frame, 2 if isinstance(frame, bytes) else 1)
            assert server.ask("GET", "api/kernels").json()
            if kind == "worker":
                assert server.ask("GET", "farandole/look").ok
                assert server.ask("GET", "farandole/records").ok

    fuzz(10 * share, check, V1 if protocol else LEGACY)


def _encoded(query: dict[str, str]) -> dict[str, bytes]:
    return {key: value.encode("utf-8", "replace") for key, value in query.items()}
