"""Exchanges changes of parameters with the parameter server, beside the training."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from contextlib import suppress

import torch

from farandole.ranks.training.sync.exchange import beside
from farandole.ranks.training.sync.payloads import PAYLOADS
from farandole.ranks.training.sync.server import frames

CONNECT_SECONDS = 20.0


class Exchanger:
    """A connection to the parameter server. Only one exchange is in progress at a time."""

    def __init__(self, host: str, port: int, key: bytes, *, rank: int, payload: str) -> None:
        self._payload = PAYLOADS[payload]
        self._peer = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
        self._peer.settimeout(None)
        frames.configure(self._peer)
        frames.send_key(self._peer, key, rank)

    def start(self, change: torch.Tensor, steps: float) -> tuple[torch.Tensor, int, Future[torch.Tensor]]:
        """Send a change of the parameters, of shape (n,), which was made with this many steps.

        Returns:
            tuple: the change that the server receives, which rounding may have altered; the bytes that are sent; and a
            future for the difference of the reference to what this rank knows of it. The future raises OSError if the
            server is gone.
        """
        encoded = self._payload.encode(change, 1).cpu()
        sent = self._payload.decode(encoded, len(change)).to(change.device)
        return sent, encoded.nbytes, beside(lambda: self._exchange(encoded, steps, len(change)))

    def close(self) -> None:
        """End the connection. An exchange that is in progress raises an error."""
        # Only a shutdown ends a call that waits for data.
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()

    def _exchange(self, encoded: torch.Tensor, steps: float, count: int) -> torch.Tensor:
        frames.send(self._peer, steps, encoded)
        _, received = frames.receive(self._peer, encoded.dtype)
        return self._payload.decode(received, count)
