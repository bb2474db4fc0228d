"""Sends requests to the engine over its socket, using only Python's standard library."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 20.0
NOT_FOUND = 404


class EngineError(RuntimeError):
    """Raised when the engine does not answer, or refuses a request; ``remedy`` says what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


class Engine(Protocol):
    """The interface through which the checks query the engine."""

    def get(self, path: str, **query: Any) -> Any:
        """Return the engine's parsed JSON answer, or None if the object does not exist; raises `EngineError`."""


class SocketEngine:
    """An engine that listens on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request to the engine and return its answer, or None if the object does not exist."""
        values = "&".join(f"{key}={quote(json.dumps(value))}" for key, value in query.items())
        connection = _Connection(self.path)
        try:
            connection.request("GET", f"{path}?{values}" if values else path)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as exc:
            raise _no_answer(self.path, exc) from exc
        finally:
            connection.close()
        if answer.status == NOT_FOUND:
            return None
        if answer.status >= 400:
            raise EngineError(
                f"The engine refused {path}: {content.decode(errors='replace').strip()}",
                "See its log: journalctl -u docker",
            )
        return json.loads(content)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(str(self._path))


def _no_answer(path: Path, exc: Exception) -> EngineError:
    if isinstance(exc, PermissionError):
        return EngineError(
            f"You may not use the engine at {path}.",
            'Join its group and log in again: sudo usermod -aG docker "$USER" ; or run this as root.',
        )
    if isinstance(exc, TimeoutError):
        return EngineError(
            f"The Docker engine at {path} does not respond within {SECONDS:.0f} s.",
            "Restart it: sudo systemctl restart docker",
        )
    return EngineError(
        f"No Docker engine responds at {path} ({getattr(exc, 'strerror', None) or exc}).",
        "Install Docker 20.10 or newer (https://docs.docker.com/engine/install), start it: sudo systemctl enable --now "
        "docker\nIf its socket is another file (rootless Docker), set FARANDOLE_ENGINE_SOCKET in .env.",
    )
