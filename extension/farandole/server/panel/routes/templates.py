"""The panel's routes for templates: notebooks that train on small data, and that users fill with their own."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jupyter_core.utils import ensure_async
from tornado import web

from farandole.exceptions import UsageError
from farandole.server.panel import wire_runs
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.routes.clusters import PanelHandler, requires, typed

NAMES = ("image-classifier", "sequence-model", "fine-tuning", "plain-horovod", "plain-ddp")
"""The templates in the order in which the page shows them."""
HUB_START = "%cluster start --workers {WORKERS}"
LOCAL_START = "%cluster start --local --ranks {WORKERS}"


class TemplatesHandler(PanelHandler):
    """``GET templates`` returns the list of templates."""

    @requires("read")
    async def get(self) -> None:
        """Respond with the name, the title and the description of each template."""
        self.answer({"templates": [describe(name) for name in NAMES]})


class TemplateHandler(PanelHandler):
    """``POST templates/NAME`` creates a notebook from a template."""

    @requires("write")
    async def post(self, name: str) -> None:
        """Save a copy of the template under an unused name in the folder, and respond with its path."""
        if name not in NAMES:
            raise RefusedError("unknown", f"there is no template {name!r}; the templates are {', '.join(NAMES)}")
        folder = typed(self.body(), "folder", str)
        await self.check_folder(folder)
        async with self.panel.used():
            content = notebook(name, hub=self.panel.monitor.hub is not None)
        self.answer({"path": await self.save(f"{name}.ipynb", folder, content)}, 201)

    async def check_folder(self, folder: str) -> None:
        """Raise UsageError if there is no such folder below the server's root."""
        try:
            exists = await ensure_async(self.contents_manager.dir_exists(folder))
        except web.HTTPError:  # the folder is outside the root
            exists = False
        if not exists:
            raise UsageError(f"there is no folder {folder[:200]!r} on this server; choose another folder")

    async def save(self, name: str, folder: str, content: dict[str, Any]) -> str:
        """Save a notebook in a folder, and return its path. If the name is taken, a number is added to it."""
        manager = self.contents_manager
        unused = await ensure_async(manager.increment_filename(name, folder, insert="-"))
        path = f"{folder}/{unused}".strip("/")
        await ensure_async(manager.save({"type": "notebook", "format": "json", "content": content}, path))
        return path


def notebook(name: str, *, hub: bool) -> dict[str, Any]:
    """Return a template's notebook. Without a hub, it starts its cluster on this machine."""
    text = (files("farandole") / "templates" / f"{name}.ipynb").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text if hub else text.replace(HUB_START, LOCAL_START))
    return content


def describe(name: str) -> wire_runs.Template:
    """Return a template's title and description: the heading and the first sentence of its first cell."""
    heading, _, text = "".join(notebook(name, hub=True)["cells"][0]["source"]).partition("\n\n")
    sentence = text.replace("\n", " ").partition(". ")[0]
    return {"name": name, "title": heading.removeprefix("# "), "description": f"{sentence}."}
