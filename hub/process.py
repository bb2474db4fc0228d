"""Runs a hub as a child process: starts the hub, waits until it answers, and stops it with all its processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

import psutil
import requests

from hub.addresses import session_to
from spawner_config.origins.hosts import DEFAULT_DOMAIN, PublicAddress, is_local
from spawner_config.settings import ROOT, Settings, ensure_password

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = ROOT / "hub" / "start.py"
CONFIG = ROOT / "hub" / "jupyterhub_config.py"
START_DEADLINE = 90.0
STOP_DEADLINE = 60.0
MARK = "FARANDOLE_HUB_OF"
"""The environment variable that identifies a hub's processes.

FARANDOLE_STATE cannot identify them, because it may also be set in the user's shell and in make.
"""


class HubProcessError(RuntimeError):
    """Raised when the hub cannot be started; the message says why and what to do."""


class HubProcess:
    """A hub that runs in a separate session, so that Ctrl-C in the terminal does not interrupt it directly."""

    def __init__(self, settings: Settings, config: Path = CONFIG) -> None:
        """Start the hub; raises `HubProcessError` if its port or its state folder is in use."""
        self.settings = settings
        self.password = ensure_password(settings)
        self.log_path = settings.state / "hub.log"
        self._lock = _lock(settings.state)
        _check_port(settings.port)
        self._ipv6 = hold_ipv6(settings.port)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(START), "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(settings),
                cwd=settings.state,
                start_new_session=True,
                # The hub inherits the lock, so no second hub can use the same database while this hub runs.
                pass_fds=[self._lock.fileno()],
            )

    @property
    def url(self) -> str:
        """The URL of the hub for users, without a trailing slash."""
        if self.settings.one_origin:
            return f"http://127.0.0.1:{self.settings.port}"
        return PublicAddress(scheme="http", domain=self.settings.public_domain, port=self.settings.port).url

    def wait_ready(self) -> None:
        """Wait until the hub answers; raises `HubProcessError`, with the end of the hub's log, if it does not."""
        try:
            wait_until(self._answers, START_DEADLINE)
        except TimeoutError as exc:
            raise HubProcessError(f"The hub did not answer within {START_DEADLINE:.0f} s.\n{self.log_tail()}") from exc

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise HubProcessError(f"The hub ended with status {self.process.returncode}.\n{self.log_tail()}")
        return is_healthy(self.url)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the hub's log, and the path of the log."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([*text[-lines:], f"(full log: {self.log_path})"])

    def stop(self) -> list[str]:
        """Stop the hub and all its servers; return the command lines of processes that had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        leftovers = end_leftovers(self.settings.state)
        self.release()
        return leftovers

    def release(self) -> None:
        """Release the state folder and the port of a hub that has ended, so that another hub can use them."""
        self._lock.close()
        if self._ipv6 is not None:
            self._ipv6.close()


def is_healthy(url: str, timeout: float = 5.0) -> bool:
    """Return whether the hub at ``url``, on this machine, reports within ``timeout`` seconds that it is healthy.

    The request goes to 127.0.0.1, because the host in ``url`` may resolve to another machine or not at all.
    """
    try:
        return session_to(lambda _host: "127.0.0.1").get(f"{url}/hub/health", timeout=timeout).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


def local_session() -> requests.Session:
    """Return an HTTP session for a hub on this machine.

    The session ignores proxy settings in the environment, and resolves names below ``localhost`` as browsers do.
    """
    return session_to(lambda host: "127.0.0.1" if is_local(host) else host)


def wait_until(happened: Callable[[], bool], deadline: float) -> None:
    """Return once ``happened()`` is true; raises TimeoutError after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError(f"the condition was not met within {deadline:.0f} s")
        time.sleep(0.1)


def processes_of(state: Path) -> list[psutil.Process]:
    """Return the processes of the hub that uses the folder ``state``, identified by their environment variables."""
    found = []
    for process in psutil.process_iter():
        try:
            environment, status = process.environ(), process.status()
        except (psutil.Error, OSError):
            continue
        home = environment.get("HOME", "")
        ours = environment.get(MARK) == str(state) or home.startswith(f"{state / 'homes'}{os.sep}")
        if ours and process.pid != os.getpid() and status != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def end_leftovers(state: Path, timeout: float = 10.0) -> list[str]:
    """Wait for the processes of a stopped hub to exit; kill the remaining ones and return their command lines."""
    try:
        wait_until(lambda: not processes_of(state), timeout)
    except TimeoutError:
        return [_kill(process) for process in processes_of(state)]
    return []


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process, or an empty string if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> str:
    command = command_of(process)
    with suppress(psutil.NoSuchProcess):
        process.kill()
    return command or f"{process.pid} (ended by now)"


def _environment(settings: Settings) -> dict[str, str]:
    ours = {
        "FARANDOLE_PORT": str(settings.port),
        "FARANDOLE_STATE": str(settings.state),
        "FARANDOLE_PROFILES_FILE": str(settings.profiles),
        "FARANDOLE_DOMAIN": settings.domain,
        "FARANDOLE_ORIGINS": "one" if settings.one_origin else "per-user",
        MARK: str(settings.state),
    }
    return {**os.environ, **ours}


def _lock(state: Path) -> IO[str]:
    lock = (state / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        lock.close()
        message = (
            f"A hub is already running with the state folder {state}. "
            "Stop it, or set FARANDOLE_STATE to another folder."
        )
        raise HubProcessError(message) from exc
    return lock


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as exc:
            message = f"Port {port} of 127.0.0.1 cannot be used ({exc.strerror}). Set FARANDOLE_PORT to another port."
            raise HubProcessError(message) from exc


def hold_ipv6(port: int) -> socket.socket | None:
    """Occupy a port of ::1 without listening. Return the socket, or None if this machine has no IPv6.

    Browsers try ::1 before 127.0.0.1 for names below ``localhost``. If another program listened there, browsers would
    send it the hub's cookies and passwords. Raises `HubProcessError` if the port is in use.
    """
    holder = None
    try:
        holder = socket.socket(socket.AF_INET6)
        holder.bind(("::1", port))
    except OSError as exc:
        if holder is not None:
            holder.close()
        if exc.errno != errno.EADDRINUSE:
            return None
        raise HubProcessError(
            f"Another program uses port {port} of ::1. Browsers would show its pages instead of the hub's, because "
            f"{DEFAULT_DOMAIN} resolves to ::1 first. End that program, or set FARANDOLE_PORT to another port."
        ) from exc
    return holder
