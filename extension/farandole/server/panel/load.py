"""Adds the panel's routes to a notebook server."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from jupyter_server.utils import url_path_join

from farandole.server.panel.panel import Panel
from farandole.server.panel.routes import clusters, endpoints, logs, runs, snapshots, table, templates
from farandole.server.panel.routes.stream import EventsHandler
from farandole.server.panel.table.deletion import remove_leftovers

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

SEGMENT = r"([^/]+)"


def add_panel(serverapp: ServerApp) -> Panel:
    """Create a panel, add its routes to a Jupyter server, and return the panel."""
    root = Path(serverapp.root_dir).expanduser().absolute()
    panel = Panel(root=root, log=serverapp.log)
    base = url_path_join(serverapp.base_url, "farandole/panel")
    routes: list[tuple[str, Any]] = [
        ("state", clusters.StateHandler),
        ("events", EventsHandler),
        ("clusters", clusters.ClustersHandler),
        (f"clusters/{SEGMENT}", clusters.ClusterHandler),
        (f"clusters/{SEGMENT}/workers/{SEGMENT}/log", clusters.WorkerLogHandler),
        (f"endpoints/{SEGMENT}", endpoints.EndpointHandler),
        (f"endpoints/{SEGMENT}/example", endpoints.ExampleHandler),
        (f"endpoints/{SEGMENT}/infer", endpoints.InferHandler),
        ("table", table.TableHandler),
        ("runs", runs.RunsHandler),
        (f"runs/{SEGMENT}", table.ChangeableRunHandler),
        (f"runs/{SEGMENT}/series", runs.SeriesHandler),
        (f"runs/{SEGMENT}/usage", runs.UsageHandler),
        (f"runs/{SEGMENT}/logs/([0-9]+)", logs.RankLogHandler),
        (f"runs/{SEGMENT}/search", logs.SearchHandler),
        (f"runs/{SEGMENT}/csv", runs.CsvHandler),
        (f"runs/{SEGMENT}/stop", runs.StopHandler),
        ("snapshots", snapshots.SnapshotsHandler),
        ("snapshots/versions", snapshots.VersionsHandler),
        (f"snapshots/jobs/{SEGMENT}", snapshots.JobHandler),
        (f"snapshots/{SEGMENT}/changes", snapshots.ChangesHandler),
        (f"snapshots/{SEGMENT}/files", snapshots.FilesHandler),
        (f"snapshots/{SEGMENT}/restore", snapshots.RestoreHandler),
        ("templates", templates.TemplatesHandler),
        (f"templates/{SEGMENT}", templates.TemplateHandler),
    ]
    handlers = [(url_path_join(base, path), handler, {"panel": panel}) for path, handler in routes]
    serverapp.web_app.add_handlers(".*$", handlers)
    # The removal of a large run may take long, and nothing waits for it.
    Thread(target=remove_leftovers, args=(panel.store.folder,), name="farandole-leftovers", daemon=True).start()
    return panel
