"""The page of a worker's server for browsers, to which the worker's name on the hub's pages leads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 40rem; padding: 0 1rem }}</style>
</head>
<body>
<h1>{title}</h1>
<p>This server runs ranks of the cluster; you lead it from a notebook, where the Farandole panel shows its state and
its log.</p>
{links}</body>
</html>
"""


class PageHandler(JupyterHandler):
    """``GET farandole/page`` returns a page with links to the user's notebook server and to the hub."""

    @property
    def content_security_policy(self) -> str:
        """The page's policy, which allows only the style in the page itself."""
        return f"{super().content_security_policy}; default-src 'none'; style-src 'unsafe-inline'"

    @web.authenticated
    def get(self) -> None:
        """Respond with the page. Without a login, the user is sent to the login page."""
        self.finish(page(os.environ))


def page(environment: Mapping[str, str]) -> str:
    """Return the HTML of the page for a worker with these environment variables."""
    name = environment.get("FARANDOLE_WORKER", "local")
    cluster, _, index = name.rpartition("-w")
    title = f"Worker {index} of cluster {cluster}" if cluster else f"Worker {name}"
    links = [f'<li><a href="{escape(url)}">{text}</a></li>\n' for url, text in _links(environment)]
    return PAGE.format(title=escape(title), links=f"<ul>\n{''.join(links)}</ul>\n" if links else "")


def _links(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return addresses and texts of links. There are none for a worker that a driver has started without a hub."""
    if "JUPYTERHUB_SERVICE_PREFIX" not in environment:
        return []
    # The worker's path is that of the user's notebook server, followed by the worker's name.
    notebook = environment["JUPYTERHUB_SERVICE_PREFIX"].rstrip("/").rpartition("/")[0]
    hub = environment.get("JUPYTERHUB_HOST", "") + environment.get("JUPYTERHUB_BASE_URL", "/")
    return [(f"{notebook}/", "Your notebook server"), (f"{hub.rstrip('/')}/hub/home", "The home page of the hub")]
