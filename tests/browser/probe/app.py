"""A user's own server, as the command of an endpoint. It lists the requests that changed something."""

import asyncio
import json
import os

from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

ACTS = []


class App(RequestHandler):
    """Serves the list, and adds requests to it."""

    def get(self):
        """Serve the list."""
        self.finish(json.dumps({"acts": ACTS}))

    def post(self):
        """Add a request to the list."""
        ACTS.append(self.request.body.decode())


class Socket(WebSocketHandler):
    """Adds connections to the list. Like many servers, it accepts connections from all origins."""

    def check_origin(self, origin):
        """Accept the connection."""
        return True

    def open(self):
        """Add the connection to the list."""
        ACTS.append("websocket")


async def serve():
    """Serve until the process ends."""
    Application([("/", App), ("/socket", Socket)]).listen(int(os.environ["PORT"]), "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
