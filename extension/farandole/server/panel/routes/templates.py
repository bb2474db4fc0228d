"""The panel's routes for templates: notebooks that train on small data, and that users fill with their own."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.contents.fileio import FileManagerMixin
from jupyter_server.utils import ApiPath, to_os_path
from tornado import web

from farandole.exceptions import UsageError
from farandole.server.panel import wire_routes
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
        self.answer({"path": await self.save(name, folder, content)}, 201)

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
        path = f"{folder}/{await self.take_name(name, folder)}".strip("/")
        try:
            model = {"type": "notebook", "format": "json", "content": content}
            await ensure_async(self.contents_manager.save(model, path))
        except web.HTTPError:
            if isinstance(self.contents_manager, FileManagerMixin):
                Path(to_os_path(ApiPath(path), self.contents_manager.root_dir)).unlink(missing_ok=True)
            raise
        return path

    async def take_name(self, name: str, folder: str) -> str:
        """Return an unused name. A file then has it, so that no other request or server of this home takes it too."""
        manager = self.contents_manager
        if not isinstance(manager, FileManagerMixin):
            unused: str = await ensure_async(manager.increment_filename(f"{name}.ipynb", folder, insert="-"))
            return unused
        try:
            return create_unused(Path(to_os_path(ApiPath(folder), manager.root_dir)), name)
        except OSError as exc:
            raise UsageError(
                f"nothing can be written to the folder {folder[:200]!r} ({exc.strerror}); choose another folder"
            ) from exc


def create_unused(folder: Path, name: str) -> str:
    """Create an empty file for a notebook with the first free name, and return this name."""
    number = 0
    while True:
        unused = f"{name}-{number}.ipynb" if number else f"{name}.ipynb"
        try:
            # A dangling link takes a name as well, so that nothing is written through it.
            (folder / unused).open("x").close()
        except FileExistsError:
            number += 1
        else:
            return unused


def notebook(name: str, *, hub: bool) -> dict[str, Any]:
    """Return a template's notebook. Without a hub, it starts its cluster on this machine."""
    text = (files("farandole") / "templates" / f"{name}.ipynb").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text if hub else text.replace(HUB_START, LOCAL_START))
    return content


def describe(name: str) -> wire_routes.Template:
    """Return a template's title and description: the heading and the first sentence of its first cell."""
    heading, _, text = "".join(notebook(name, hub=True)["cells"][0]["source"]).partition("\n\n")
    sentence = text.replace("\n", " ").partition(". ")[0]
    return {"name": name, "title": heading.removeprefix("# "), "description": f"{sentence}."}
