"""URLs of a hub and of its users' servers, and a tunnel that makes a remote hub reachable below localhost."""

from __future__ import annotations

import asyncio
import socket
import threading
from urllib.parse import unquote, urlsplit

from spawner_config.origins.hosts import is_domain, is_local, subdomain_hook


def url_of(hub: str, path: str) -> str:
    """Return the URL of a path at the hub with the address ``hub``. Paths below /user/NAME are on the user's host."""
    parts, words = urlsplit(hub), path.split("/")
    if words[:2] != ["", "user"] or not is_domain(parts.hostname or ""):
        return f"{hub}{path}"
    host = subdomain_hook(unquote(words[2]), str(parts.hostname), "user")
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{path}"


def connect(url: str, seconds: float) -> socket.socket:
    """Return a connection to the host of a URL, resolved as browsers do."""
    parts = urlsplit(url)
    host = str(parts.hostname)
    return socket.create_connection(("127.0.0.1" if is_local(host) else host, parts.port or 80), seconds)


def forward(port: int, target: tuple[str, int]) -> None:
    """Forward connections from a port of this machine to another address, until this process ends."""
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
    """Copy all bytes. Both directions are closed when either one ends."""
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
