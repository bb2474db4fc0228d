"""How a notebook server gets the panel's routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.utils import url_path_join

from farandole.server.panel.panel import Panel
from farandole.server.panel.routes import clusters as routes
from farandole.server.panel.routes import runs as run_routes
from farandole.server.panel.routes.stream import EventsHandler

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

NAME = r"([^/]+)"


def add_panel(serverapp: ServerApp) -> Panel:
    """Add the panel's routes to a Jupyter server."""
    root = Path(serverapp.root_dir).expanduser().absolute()
    panel = Panel(root=root, log=serverapp.log)
    base = url_path_join(serverapp.base_url, "farandole/panel")
    ours: list[tuple[str, Any]] = [
        ("state", routes.StateHandler),
        ("events", EventsHandler),
        ("clusters", routes.ClustersHandler),
        (f"clusters/{NAME}", routes.ClusterHandler),
        (f"clusters/{NAME}/workers/{NAME}/log", routes.WorkerLogHandler),
        ("runs", run_routes.RunsHandler),
        (f"runs/{NAME}", run_routes.RunHandler),
        (f"runs/{NAME}/series", run_routes.SeriesHandler),
        (f"runs/{NAME}/logs/([0-9]+)", run_routes.RankLogHandler),
        (f"runs/{NAME}/csv", run_routes.CsvHandler),
        (f"runs/{NAME}/stop", run_routes.StopHandler),
    ]
    handlers = [(url_path_join(base, path), handler, {"panel": panel}) for path, handler in ours]
    serverapp.web_app.add_handlers(".*$", handlers)
    return panel
