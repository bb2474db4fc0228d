"""A real process of the snapshots' service, a stand-in for the hub that checks tokens, and restic as a user runs it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from hub.services.snapshots.repository import NAME
from spawner_config.settings import ROOT
from spawner_config.snapshots.mirrors import MIRROR_SCOPE, TOKENS
from spawner_config.snapshots.settings import ACCESS

if TYPE_CHECKING:
    from pathlib import Path

ADA, GRACE, NO_ACCESS, HUBS_OWN = "a" * 32, "b" * 32, "c" * 32, "d" * 32
"""The tokens of two users, of a user's worker, and of a service."""
LAB, SCHOOL, OLD_LAB = "1a2b3c4d" * 8, "5e6f7081" * 8, "92a3b4c5" * 8
"""The tokens of two other hubs, whose mirrors the service stores, and the one that the first of them had before."""
STRANGE, STRANGE_NAME = "e" * 32, "zoë/../ada: é %2f"
MODELS = {
    ADA: {"kind": "user", "name": "ada", "scopes": [ACCESS]},
    GRACE: {"kind": "user", "name": "grace", "scopes": [ACCESS]},
    STRANGE: {"kind": "user", "name": STRANGE_NAME, "scopes": [ACCESS]},
    NO_ACCESS: {"kind": "user", "name": "ada", "scopes": ["access:servers!user=ada"]},
    HUBS_OWN: {"kind": "service", "name": "ada", "scopes": [ACCESS]},
    LAB: {"kind": "service", "name": "mirror-lab", "scopes": [MIRROR_SCOPE]},
    OLD_LAB: {"kind": "service", "name": "mirror-lab", "scopes": [MIRROR_SCOPE]},
    SCHOOL: {"kind": "service", "name": "mirror-school", "scopes": [MIRROR_SCOPE]},
}
PREFIX = "/services/snapshots/"
SECONDS = 30.0


class Hub(BaseHTTPRequestHandler):
    """Answers ``GET /hub/api/user`` as the hub does."""

    def do_GET(self) -> None:
        token = self.headers.get("Authorization", "").removeprefix("token ")
        model = MODELS.get(token) if self.path == "/hub/api/user" else None
        content = json.dumps(model or {"status": 403, "message": "Forbidden"}).encode()
        self.send_response(200 if model else 403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """Keep the output of tests short."""


class Service:
    """The service as a process of its own, and requests to it."""

    def __init__(self, state: Path, hub_url: str, **settings: str) -> None:
        self.state = state
        self._hub_url = hub_url
        self._settings = settings
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {
            **os.environ,
            TOKENS: f"lab:{LAB},school:{SCHOOL}",
            **self._settings,
            "FARANDOLE_STATE": str(self.state),
            "JUPYTERHUB_API_URL": f"{self._hub_url}/hub/api",
            "JUPYTERHUB_API_TOKEN": "f" * 32,
            "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
            "JUPYTERHUB_SERVICE_URL": self.url,
        }
        command = [sys.executable, "-m", "hub.services.snapshots", "127.0.0.1"]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT)
        give_up = time.monotonic() + SECONDS
        while time.monotonic() < give_up:
            assert self.process.poll() is None, "the service has ended"
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError("the service does not listen")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)

    def ask(
        self, method: str, path: str, token: str | None = ADA, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Send a request exactly with this path, and return status, content and headers of the answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        sent = {**({"Authorization": f"token {token}"} if token else {}), **headers}
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in sent.items()})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, dict(answer.headers)

    def open(self, token: str = ADA) -> dict[str, Any]:
        """Open the repository of the token's user."""
        status, content, _ = self.ask("POST", f"{PREFIX}open", token, b"")
        assert status == 200, content
        found: dict[str, Any] = json.loads(content)
        return found

    def folder(self, name: str = "ada") -> Path:
        """Return the folder of a repository."""
        return self.state / "snapshots" / name

    def names(self, kind: str, name: str = "ada") -> list[str]:
        """Return the names of the files of a kind on the disk."""
        return sorted(path.name for path in (self.folder(name) / kind).rglob("*") if NAME.fullmatch(path.name))

    def start_upload(self, content: bytes, sent: int, kind: str = "data") -> socket.socket:
        """Begin to send a file to ada's repository, and stop after so many bytes."""
        connection = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        path = f"{PREFIX}repositories/ada/{kind}/{hashlib.sha256(content).hexdigest()}"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: token {ADA}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        connection.sendall(head.encode() + content[:sent])
        return connection

    def start_download(self, name: str) -> socket.socket:
        """Ask for a file of ada's repository, and read nothing of the answer."""
        connection = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        path = f"{PREFIX}repositories/ada/data/{name}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: token {ADA}\r\n\r\n".encode())
        return connection

    def wait_for_parts(self, number: int) -> None:
        """Wait until so many files are arriving."""
        give_up = time.monotonic() + SECONDS
        while (found := len(list((self.folder(".service") / "parts").iterdir()))) != number:
            assert time.monotonic() < give_up, f"{found} files are arriving, not {number}"
            time.sleep(0.02)


class Client:
    """The program restic as a user runs it."""

    def __init__(self, opened: dict[str, Any], user: str, token: str, folder: Path, proxy: str = "") -> None:
        """Use the repository that the service has opened.

        A hub's proxy routes by the host in the URL, so restic reaches it as an HTTP proxy, at the address ``proxy``.
        """
        self._environment = {**os.environ, **({"HTTP_PROXY": proxy, "NO_PROXY": ""} if proxy else {})}
        parts = urlsplit(opened["repository"].removeprefix("rest:"))
        self.folder = folder
        folder.mkdir()
        self.url = f"rest:{parts.scheme}://{quote(user, safe='')}:{token}@{parts.netloc}{parts.path}"
        (folder / "url").write_text(self.url)
        (folder / "password").write_text(opened["password"])

    def command(self, *arguments: str) -> list[str]:
        files = ("--repository-file", str(self.folder / "url"), "--password-file", str(self.folder / "password"))
        return ["restic", *files, "--cache-dir", str(self.folder / "cache"), *arguments]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(*arguments), env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, f"restic {arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def state_of(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def as_hub(service: Service, *arguments: str, name: str = "ada") -> str:
    """Run restic on the folder of a repository with the hub's password, as an administrator does."""
    password = ("--password-file", str(service.state / "snapshots_secret"))
    command = ["restic", "--no-cache", "-r", str(service.folder(name)), *password, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
