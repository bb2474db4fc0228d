"""Makes the URLs of a hub and its users' servers, and forwards a local port to a remote hub."""

from __future__ import annotations

import asyncio
import socket
import threading
from urllib.parse import unquote, urlsplit

from spawner_config.origins.hosts import is_domain, is_local, subdomain_hook


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


def forward(port: int, target: tuple[str, int]) -> None:
    """Forward connections to a port of this machine to another address until this process ends."""
    listener = socket.create_server(("127.0.0.1", port))

    async def serve() -> None:
        async with await asyncio.start_server(join, sock=listener) as server:
            await server.serve_forever()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, away = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, away), _copy(there, writer))

    threading.Thread(target=asyncio.run, args=(serve(),), name=f"forward {port}", daemon=True).start()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy all bytes from ``reader`` to ``writer``, then close ``writer``. This also ends the other direction."""
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
