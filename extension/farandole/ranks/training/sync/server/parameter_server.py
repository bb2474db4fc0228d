"""The parameter server of the mode ``asynchronous``, which runs in threads of rank 0.

It holds the reference, which is the sum of the weighted changes of all ranks. A rank sends the change of its parameters
and receives the difference between the reference and what it knows of it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import closing, suppress
from functools import partial

import torch

from farandole.ranks.training.sync.payloads import PAYLOADS
from farandole.ranks.training.sync.server import frames

WINDOW = 8
"""Changes of each rank on average from which the shares of the ranks are computed."""
HELLO_SECONDS = 10.0
"""How long a process that connects may take to send the key."""
RETRY_SECONDS = 0.1
"""The pause after a connection could not be accepted, for example because too many files are open."""


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine reach ``host``."""
    return host == "localhost" or host.startswith("127.")


class Shares:
    """The share of each rank in the steps of all ranks, from the newest changes.

    A change is weighted by the share of its rank, so that ranks that are slower count less, and the reference moves as
    fast as with averages in which all ranks take part. All steps count alike: a step with more samples has already
    changed the parameters more, because `fd.prepare` weights gradients by samples.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._newest: deque[tuple[int, float]] = deque(maxlen=WINDOW * ranks)

    def add(self, rank: int, steps: float) -> float:
        """Record a change of ``rank`` from this many steps, and return the share of the rank, from 0 to 1."""
        self._newest.append((rank, steps))
        if len(self._newest) < WINDOW * self._ranks:
            return 1 / self._ranks
        own = sum(count for one, count in self._newest if one == rank)
        total = sum(count for _, count in self._newest)
        return own / total if total else 0.0


class ParameterServer:
    """Accepts a connection from each rank, and answers on a thread for each.

    Args:
        reference: the parameters, which are equal on all ranks, of shape (n,).
        ranks: number of ranks.
        payload: how changes travel in both directions.
        quorum: ranks whose changes since its last answer a rank gets, including itself.
        grace: seconds after which it gets the reference without them.
        host: address at which the ranks reach this one.
    """

    def __init__(
        self, reference: torch.Tensor, *, ranks: int, payload: str, quorum: int, grace: float, host: str, key: bytes
    ) -> None:
        self._initial = reference.clone()
        self._reference = reference.clone()
        self._payload = PAYLOADS[payload]
        self._shares = Shares(ranks)
        self._quorum = quorum
        self._grace = grace
        self._key = key
        self._changed = threading.Condition()
        """Held while the attributes below and the reference are used."""
        self._counts: dict[int, int] = {}
        """The number of changes from each rank that is connected."""
        self.bytes_sent = 0
        """Bytes that other ranks have been sent. Those of rank 0 do not leave the machine."""
        self._closed = False
        # The address at which other ranks reach this one need not be an address of this machine.
        self._listener = socket.create_server((host if is_loopback(host) else "", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="farandole-parameters", daemon=True).start()

    def close(self) -> None:
        """Accept no more ranks. Connections end when the ranks close them."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(RETRY_SECONDS)
                continue
            threading.Thread(target=self._serve, args=(peer,), name="farandole-parameters", daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with closing(peer), suppress(OSError):
            peer.settimeout(HELLO_SECONDS)
            rank = frames.receive_key(peer, self._key)
            peer.settimeout(None)
            frames.configure(peer)
            try:
                self._exchange(peer, rank)
            finally:
                self._forget(rank)

    def _exchange(self, peer: socket.socket, rank: int) -> None:
        # Others may have added changes before this rank has connected. It begins with the parameters before them.
        known, seen = self._initial.clone(), dict[int, int]()
        with self._changed:
            self._counts[rank] = 0
        dtype = self._payload.encode(torch.zeros(1), 1).dtype
        while True:
            steps, encoded = frames.receive(peer, dtype)
            self._add(rank, steps, self._payload.decode(encoded, len(known)))
            with self._changed:
                self._changed.wait_for(partial(self._has_quorum, rank, seen), timeout=self._grace)
                difference, seen = self._reference - known, dict(self._counts)
            answer = self._payload.encode(difference, 1)
            if rank != 0:
                with self._changed:
                    self.bytes_sent += answer.nbytes
            known += self._payload.decode(answer, len(known))
            frames.send(peer, 0, answer)  # The number of steps belongs to changes only.

    def _add(self, rank: int, steps: float, change: torch.Tensor) -> None:
        with self._changed:
            self._reference += self._shares.add(rank, steps) * change
            self._counts[rank] += 1
            self._changed.notify_all()

    def _has_quorum(self, rank: int, seen: dict[int, int]) -> bool:
        # Ranks that have left do not count, so that the others do not wait for them.
        others = [one for one in self._counts if one != rank]
        news = sum(self._counts[one] > seen.get(one, 0) for one in others)
        return news >= min(self._quorum - 1, len(others))

    def _forget(self, rank: int) -> None:
        with self._changed:
            self._counts.pop(rank, None)
            self._changed.notify_all()
