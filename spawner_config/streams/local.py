"""The NATS server of a hub without containers: a process on the loopback interface, which the hub starts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.log import app_log

from spawner_config.lifecycle.folder_lock import end_holder
from spawner_config.lifecycle.idle import KEPT
from spawner_config.settings import ROOT, ensure_secret
from spawner_config.streams.configure import configure_streams
from spawner_config.streams.settings import SECRET, StreamSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from spawner_config.settings import Settings

PROGRAM = "nats-server"
SERVICE = "streams"


def configure_local_streams(c: Any, settings: Settings, choose_port: Callable[[Path], int]) -> None:
    """Let the hub start a NATS server in its state folder, and restart it when it ends.

    ``choose_port`` returns the port that a file contains, if it is free, or another one. Without the program, the hub
    has no streams.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if shutil.which(PROGRAM, path=path) is None:
        app_log.warning("There is no program %s, so the hub has no streams. Run `make setup` in the checkout.", PROGRAM)
        return
    folder = settings.state / SERVICE
    end_holder(folder)
    # With the same port, servers that outlive a killed hub can reach the next one's NATS server.
    listen = f"127.0.0.1:{choose_port(settings.state / 'streams.port')}"
    secret = ensure_secret(settings.state / "streams_secret")
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    service = {
        "name": SERVICE,
        "command": [sys.executable, "-m", "hub.services.streams", str(folder), listen],
        "environment": {**kept, "PATH": path, "PYTHONPATH": str(ROOT), SECRET: secret},
    }
    c.JupyterHub.services = [*(c.JupyterHub.get("services") or []), service]
    found = StreamSettings.from_environment({**os.environ, SECRET: secret})
    configure_streams(c, found, hub_url=f"nats://{listen}", users_url=f"nats://{listen}")
