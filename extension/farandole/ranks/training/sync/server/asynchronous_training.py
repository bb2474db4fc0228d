"""The mode ``asynchronous`` of ``fd.prepare``: ranks exchange parameters with a server, and wait for no other rank."""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training.sync.modes import Asynchronous
from farandole.ranks.training.sync.server import frames
from farandole.ranks.training.sync.server.exchanger import Answer, Exchanger
from farandole.ranks.training.sync.server.parameter_server import ParameterServer
from farandole.ranks.training.sync.training import Training
from farandole.ranks.world import collectives


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An exchange in progress: the step after which it began, and the answer."""

    step: int
    answer: Future[Answer]


class AsynchronousTraining(Training):
    """Exchanges changes of parameters with the server every few steps."""

    _mode: Asynchronous

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Asynchronous) -> None:
        super().__init__(model, optimizer, mode)
        self._exchanger: Exchanger | None = None
        self._server: ParameterServer | None = None
        self._pending: Exchange | None = None
        self._last = 0
        self._closers: list[weakref.finalize[[], Any]] = []

    def close(self) -> None:
        """Do nothing in further steps of the optimizer, and end the connection."""
        super().close()
        self._disconnect()

    def _finish(self) -> None:
        """Take the newest reference. Ranks do not wait for each other, so their parameters differ afterwards."""
        self._finish_exchange()
        self._start_exchange()
        self._finish_exchange()

    def _enter_world(self) -> None:
        self._disconnect()
        self._agree()
        self._connect()

    def _exchange_if_due(self, _optimizer: Optimizer) -> None:
        if self._pending is not None and self._is_due(self._pending):
            self._finish_exchange()
        if self._pending is None and self.steps - self._last >= self._mode.every:
            self._start_exchange()
        if self._server is not None:
            self._figures.sent = self._server.bytes_sent

    def _is_due(self, exchange: Exchange) -> bool:
        # A rank that is a whole interval ahead of an answer waits for it, which bounds the staleness.
        return exchange.answer.done() or self.steps - exchange.step >= self._mode.every

    def _start_exchange(self) -> None:
        assert self._exchanger is not None
        change = self._vector.read() - self._known
        answer = self._exchanger.start(change, self.steps - self._last)
        self._pending = Exchange(step=self.steps, answer=answer)
        self._last = self.steps

    def _finish_exchange(self) -> None:
        if (exchange := self._pending) is None:
            return
        self._pending = None
        with self._figures.waiting(self.steps - exchange.step), _server_lost():
            answer = exchange.answer.result()
        if self._server is None:
            self._figures.sent += answer.size
        difference = answer.difference.to(answer.sent.device)
        self._known += difference
        self._vector.add(difference - answer.sent)

    def _connect(self) -> None:
        """Start the server on rank 0, and connect to it. All ranks call this method, with equal parameters."""
        self._known = self._vector.read()
        self._last = self.steps
        about = b""
        if context.rank() == 0:
            about = json.dumps(self._open_server()).encode()
        found = json.loads(collectives.broadcast_bytes(about, root=0))
        if "error" in found:
            raise UsageError(
                f"fd.sync.asynchronous: rank 0 cannot start the parameter server ({found['error']}); use "
                "sync=fd.sync.local(...), which needs none."
            )
        with _server_lost():
            self._exchanger = Exchanger(
                found["host"],
                found["port"],
                bytes.fromhex(found["key"]),
                rank=context.rank(),
                payload=self._mode.payload,
            )
        self._closers.append(weakref.finalize(self, self._exchanger.close))

    def _open_server(self) -> dict[str, Any]:
        """Start the server. Return what the ranks have to know to connect to it, or the error."""
        key, host = secrets.token_bytes(frames.KEY_BYTES), _own_address()
        try:
            self._server = ParameterServer(
                self._known.cpu(),
                ranks=context.size(),
                payload=self._mode.payload,
                quorum=min(self._mode.quorum, context.size()),
                grace=self._mode.grace,
                host=host,
                key=key,
            )
        except OSError as exc:
            return {"error": str(exc)}
        self._closers.append(weakref.finalize(self, self._server.close))
        return {"host": host, "port": self._server.port, "key": key.hex()}

    def _disconnect(self) -> None:
        self._pending = self._exchanger = self._server = None
        while self._closers:
            self._closers.pop()()


@contextmanager
def _server_lost() -> Iterator[None]:
    """Give an error of the connection the words by which the driver recognizes that a rank has left the world."""
    try:
        yield
    except OSError as exc:
        raise ConnectionError(f"the parameter server on rank 0 is gone ({exc}): Connection closed by peer") from exc


def _own_address() -> str:
    """Return the address at which the other ranks reach this one: that of the backend."""
    variable = "MASTER_ADDR" if context.backend() == "torch" else "HOROVOD_HOSTNAME"
    return os.environ.get(variable, "") or "127.0.0.1"
