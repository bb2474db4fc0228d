"""The hub's pages that differ from those of JupyterHub: their templates, and what these show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).with_name("templates")


def add_templates(c: Any, folder: Path = TEMPLATES) -> None:
    """Add a folder with templates. Earlier folders, such as those of the site, take precedence."""
    c.JupyterHub.template_paths = [*(c.JupyterHub.get("template_paths") or []), str(folder)]


def show(c: Any, **variables: Any) -> None:
    """Give variables to all templates, beside those of the site."""
    c.JupyterHub.template_vars = {**template_vars(c), **variables}


def template_vars(c: Any) -> dict[str, Any]:
    """Return the variables that templates have so far."""
    return {**(c.JupyterHub.get("template_vars") or {})}
