"""Tests of what jupyter-server-proxy gets to know about the TensorBoard viewer."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tomllib
from collections.abc import Iterator

import pytest
from farandole.server.tensorboard import entry
from jupyter_server_proxy.config import ServerProcess, ServerProxy
from simpervisor import atexitasync
from tornado.web import HTTPError

from spawner_config.settings import ROOT

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand in for Jupyter Server and one proxied program, and record the signals that they get."""
    received: list[str] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    monkeypatch.setattr(atexitasync, "signal_handler_set", False)
    monkeypatch.setattr(atexitasync, "_handlers", [lambda number: received.append(f"program {number}")])
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: received.append(f"server {number}"))
    yield received
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_package_offers_the_viewer_to_jupyter_server_proxy() -> None:
    project = tomllib.loads((ROOT / "extension" / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["jupyter_serverproxy_servers"]["tensorboard"].split(":")
    server = ServerProcess(name="tensorboard", **getattr(importlib.import_module(module), name)())
    assert server.unix_socket is True
    assert server.launcher_entry.title == "TensorBoard"
    assert server.launcher_entry.path_info == "tensorboard/"
    assert server.update_last_activity is False


def test_only_the_servers_own_machine_is_proxied() -> None:
    assert ServerProxy().host_allowlist == ["localhost", "127.0.0.1"]


def test_the_command_names_the_socket_and_the_server(signals: list[str]) -> None:
    expected = [sys.executable, "-m", "farandole.server.tensorboard", "/run/socket", str(os.getpid())]
    assert entry.command("/run/socket") == expected


def test_without_tensorboard_its_page_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "find_spec", lambda _name: None)
    with pytest.raises(HTTPError, match="run `%pip install tensorboard`") as raised:
        entry.command("/run/socket")
    assert raised.value.status_code == 501


def test_a_signal_reaches_the_programs_and_then_jupyter_server(signals: list[str]) -> None:
    entry.share_signals()
    entry.share_signals()
    atexitasync.add_handler(lambda number: signals.append(f"another program {number}"))
    signal.raise_signal(signal.SIGTERM)
    assert signals == ["program 15", "another program 15", "server 15"]
