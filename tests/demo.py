"""Runs the first notebook without a browser: log in, start a notebook server, run all cells, and shut down."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

from requests import RequestException
from websocket import WebSocketException

from hub.process import HubProcess, HubProcessError
from hub.up import NOTEBOOK, stop_on_signals
from spawner_config.local import free_port
from spawner_config.settings import Settings, SettingsError
from tests.clients.browser import Browser, BrowserError
from tests.clients.kernel import CellError, RemoteKernel

USER = "demo"
CELL_DEADLINE = 300.0
SHOWN_LINES = 40


def run_notebook(address: str, token: str) -> str:
    """Run all cells of the notebook on the server at ``address``, and return the output of the cell tagged `result`."""
    result = ""
    with RemoteKernel(address, token, NOTEBOOK) as kernel:
        for number, cell in enumerate(kernel.code_cells(), start=1):
            started = time.monotonic()
            output = kernel.execute(cell.source, deadline=CELL_DEADLINE)
            print(f"--- cell {number} ({time.monotonic() - started:.1f} s) {cell.source.splitlines()[0]}")
            print(shorten(output), flush=True)
            if "result" in cell.tags:
                result = output
    if not result.strip():
        raise CellError(f'No cell of {NOTEBOOK} with the tag "result" printed anything.')
    return result


def shorten(text: str) -> str:
    """Return the text, shortened to its first and last lines if it is long."""
    lines = text.splitlines()
    if len(lines) <= SHOWN_LINES:
        return text.rstrip("\n")
    half = SHOWN_LINES // 2
    return "\n".join([*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]])


def choose_settings() -> Settings:
    """Return the settings from the environment, by default with a free port and a subfolder of the state folder."""
    settings = Settings.from_environment(os.environ)
    if not os.environ.get("FARANDOLE_PORT"):
        settings = replace(settings, port=free_port())
    if not os.environ.get("FARANDOLE_STATE"):
        settings = replace(settings, state=settings.state / "demo")
    return settings


def play(hub: HubProcess) -> None:
    """Perform the actions of a user, and print the results."""
    hub.wait_ready()
    print(f"The hub answers at {hub.url}; logging in as {USER!r} ...", flush=True)
    browser = Browser(hub.url, USER, hub.password)
    address = browser.start_notebook()
    print(f"The notebook server runs at {address}; running {NOTEBOOK} ...", flush=True)
    result = run_notebook(address, browser.make_token())
    print(f"\n=== result ===\n{result.strip()}", flush=True)


def main() -> int:
    """Run the demo, and return 0 if every cell succeeded and no process was left behind."""
    stop_on_signals()
    try:
        hub = HubProcess(choose_settings())
    except (HubProcessError, SettingsError) as exc:
        print(exc, file=sys.stderr)
        return 1
    status = 0
    try:
        play(hub)
    except (HubProcessError, BrowserError, CellError, RequestException, WebSocketException) as exc:
        print(f"The demo failed: {exc}\nLogs: {hub.settings.state / 'logs'}, {hub.log_path}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    finally:
        leftovers = hub.stop()
    for command in leftovers:
        print(f"This process had to be killed: {command}", file=sys.stderr)
    return status or (1 if leftovers else 0)


if __name__ == "__main__":
    sys.exit(main())
