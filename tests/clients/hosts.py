"""Makes the URLs of a hub and its users' servers, and forwards a port to a remote hub.

``python -m tests.clients.hosts PORT HOST PORT DELAY`` forwards a port of this machine until the process is killed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from functools import partial
from urllib.parse import unquote, urlsplit

from spawner_config.origins.hosts import is_domain, is_local, subdomain_hook

PIECES = 1000
"""The largest number of pieces on their way in a forwarded connection."""


def url_of(hub: str, path: str) -> str:
    """Return the URL of a path on the hub at the URL ``hub``.

    If the hub has a domain, a path below /user/NAME is on the host of that user.
    """
    parts, words = urlsplit(hub), path.split("/")
    if words[:2] != ["", "user"] or not is_domain(parts.hostname or ""):
        return f"{hub}{path}"
    host = subdomain_hook(unquote(words[2]), str(parts.hostname), "user")
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{path}"


def connect(url: str, seconds: float) -> socket.socket:
    """Connect to the host of a URL. Like browsers, resolve names below ``localhost`` to 127.0.0.1."""
    parts = urlsplit(url)
    host = str(parts.hostname)
    return socket.create_connection(("127.0.0.1" if is_local(host) else host, parts.port or 80), seconds)


def forward(port: int, target: tuple[str, int], host: str = "127.0.0.1") -> None:
    """Forward connections to a port of this machine, at ``host``, to another address until this process ends."""
    listener = socket.create_server((host, port))
    threading.Thread(target=asyncio.run, args=(_serve(listener, target),), name=f"forward {port}", daemon=True).start()


async def _serve(listener: socket.socket, target: tuple[str, int], delay: float = 0.0) -> None:
    """Forward connections. Each byte arrives ``delay`` seconds late, in both directions."""
    async with await asyncio.start_server(partial(_join, target, delay), sock=listener) as server:
        await server.serve_forever()


async def _join(
    target: tuple[str, int], delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        await asyncio.sleep(2 * delay)
        there, away = await asyncio.open_connection(*target)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, away, delay), _copy(there, writer, delay))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Copy all bytes from ``reader`` to ``writer``, then close ``writer``. This also ends the other direction."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

    async def read() -> None:
        piece = b"not empty"
        while piece:
            try:
                piece = await reader.read(65536)
            except OSError:
                piece = b""
            await pieces.put((loop.time() + delay, piece))

    reading = asyncio.create_task(read())
    try:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        reading.cancel()
        writer.close()


if __name__ == "__main__":
    _own, _host, _port, _delay = sys.argv[1:]
    asyncio.run(_serve(socket.create_server(("127.0.0.1", int(_own))), (_host, int(_port)), float(_delay)))
