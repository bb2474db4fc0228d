"""Exchanges changes of parameters with the parameter server, beside the training."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

import torch

from farandole.ranks.training.sync.exchange import beside
from farandole.ranks.training.sync.payloads import PAYLOADS
from farandole.ranks.training.sync.server import frames

CONNECT_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an exchange has moved.

    Attributes:
        sent: the change that the server has received, which rounding may have altered.
        size: bytes that were sent.
        difference: of the server's reference to what this rank knew of it, on the CPU.
    """

    sent: torch.Tensor
    size: int
    difference: torch.Tensor


class Exchanger:
    """A connection to the parameter server. Only one exchange is in progress at a time."""

    def __init__(self, host: str, port: int, key: bytes, *, rank: int, payload: str) -> None:
        self._payload = PAYLOADS[payload]
        self._peer = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
        self._peer.settimeout(None)
        frames.configure(self._peer)
        frames.send_key(self._peer, key, rank)

    def start(self, change: torch.Tensor, steps: float) -> Future[Answer]:
        """Send a change of the parameters, of shape (n,), which was made with this many steps.

        The future raises OSError if the server is gone. A processor encodes the change beside the training.
        """
        if change.device.type == "cpu":
            return beside(lambda: self._exchange(*self._encode(change), steps))
        encoded, sent = self._encode(change)
        return beside(lambda: self._exchange(encoded, sent, steps))

    def close(self) -> None:
        """End the connection. An exchange that is in progress raises an error."""
        # Only a shutdown ends a call that waits for data.
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()

    def _encode(self, change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a change encoded, and what the server decodes from it."""
        rest = change.clone()
        encoded = self._payload.take(rest, 1).cpu()
        return encoded, change - rest

    def _exchange(self, encoded: torch.Tensor, sent: torch.Tensor, steps: float) -> Answer:
        frames.send(self._peer, steps, encoded)
        _, received = frames.receive(self._peer, encoded.dtype)
        return Answer(sent=sent, size=encoded.nbytes, difference=self._payload.decode(received, len(sent)))
