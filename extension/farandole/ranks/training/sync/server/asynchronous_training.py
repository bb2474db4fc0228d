"""The mode ``asynchronous`` of ``fd.prepare``: ranks exchange parameters with a server, and wait for no other rank."""

from __future__ import annotations

import json
import os
import secrets
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from farandole.ranks import context
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Asynchronous
from farandole.ranks.training.sync.server import frames
from farandole.ranks.training.sync.server.exchanger import Exchanger
from farandole.ranks.training.sync.server.parameter_server import ParameterServer
from farandole.ranks.training.sync.vectors import ParameterVector
from farandole.ranks.world import collectives, world


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An exchange in progress: the step after which it began, what the server receives, and the server's answer."""

    step: int
    sent: torch.Tensor
    answer: Future[torch.Tensor]


class AsynchronousTraining:
    """Exchanges changes of parameters between the steps of an optimizer.

    Attributes:
        steps: optimizer steps of this rank so far.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Asynchronous) -> None:
        self.steps = 0
        self._figures = Figures()
        self._mode = mode
        self._vector = ParameterVector(model.parameters())
        self._world: int | None = None
        self._server: ParameterServer | None = None
        self._exchanger: Exchanger | None = None
        self._pending: Exchange | None = None
        self._last = 0
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def remove_hooks(self) -> None:
        """Do nothing in further steps of the optimizer, and end the connection."""
        for hook in self._hooks:
            hook.remove()
        self._disconnect()

    def average_now(self) -> None:
        """Take the newest reference. Ranks do not wait for each other, so their parameters differ afterwards."""
        if self._world == world.current().times_left:
            self._finish_exchange()
            self._start_exchange()
            self._finish_exchange()
            self._figures.show(self._mode)

    def _before_step(self, *_: Any) -> None:
        self._figures.begin_step()
        left = world.current().times_left
        if self._world != left:
            self._disconnect()
            self._connect()
            self._world = left

    def _after_step(self, *_: Any) -> None:
        self.steps += 1
        if self._pending is not None and self._is_due(self._pending):
            self._finish_exchange()
        if self._pending is None and self.steps - self._last >= self._mode.every:
            self._start_exchange()
        self._figures.end_step(self._mode)

    def _is_due(self, exchange: Exchange) -> bool:
        # A rank that is a whole interval ahead of an answer waits for it, which bounds the staleness.
        return exchange.answer.done() or self.steps - exchange.step >= self._mode.every

    def _start_exchange(self) -> None:
        assert self._exchanger is not None
        change = self._vector.read() - self._known
        sent, size, answer = self._exchanger.start(change, self.steps - self._last)
        self._figures.sent += size
        self._pending = Exchange(step=self.steps, sent=sent, answer=answer)
        self._last = self.steps

    def _finish_exchange(self) -> None:
        if (exchange := self._pending) is None:
            return
        self._pending = None
        with self._figures.waiting(self.steps - exchange.step):
            difference = exchange.answer.result().to(exchange.sent.device)
        self._known += difference
        self._vector.add(difference - exchange.sent)

    def _connect(self) -> None:
        """Start the server on rank 0, and connect to it. All ranks call this method, with equal parameters."""
        self._known = self._vector.read()
        self._last = self.steps
        about = b""
        if context.rank() == 0:
            key = secrets.token_bytes(frames.KEY_BYTES)
            host = _own_address()
            self._server = ParameterServer(
                self._known.cpu(),
                ranks=context.size(),
                payload=self._mode.payload,
                quorum=min(self._mode.quorum, context.size()),
                grace=self._mode.grace,
                host=host,
                key=key,
            )
            about = json.dumps({"host": host, "port": self._server.port, "key": key.hex()}).encode()
        found = json.loads(collectives.broadcast_bytes(about, root=0))
        self._exchanger = Exchanger(
            found["host"],
            found["port"],
            bytes.fromhex(found["key"]),
            rank=context.rank(),
            payload=self._mode.payload,
        )

    def _disconnect(self) -> None:
        self._pending = None
        if self._exchanger is not None:
            self._exchanger.close()
        if self._server is not None:
            self._server.close()
        self._exchanger = self._server = None


def _own_address() -> str:
    """Return the address at which the other ranks reach this one: that of the backend."""
    variable = "MASTER_ADDR" if context.backend() == "torch" else "HOROVOD_HOSTNAME"
    return os.environ.get(variable, "") or "127.0.0.1"
