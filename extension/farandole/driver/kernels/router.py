"""Delivers messages from the ranks to their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farandole.driver.kernels.kernel import RankKernel
from farandole.protocol import Kind
from farandole.runs.positions import JournalPosition
from farandole.runs.run import Run


class MemberListener(Protocol):
    """Tracks the ranks of an elastic run by their messages."""

    def hear(self, kernel: RankKernel, records: Sequence[dict[str, Any]]) -> None:
        """Process messages from a kernel's rank."""


class MessageRouter:
    """Delivers each batch of rank messages to the run named in the batch, and pulled values to ``%pull``.

    All methods must be called on one event loop.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        """The runs that receive messages, indexed by id."""
        self.elastic: MemberListener | None = None
        """The elastic run that is currently being executed, if any."""
        self.on_value: Callable[[int, bytes, str], None] = lambda _rank, _value, _python: None
        """Receives the rank, the pickled values, and the version of Python that pickled them."""

    def route(
        self,
        kernel: RankKernel,
        rank: int,
        data: dict[str, Any],
        buffers: Sequence[bytes],
        position: JournalPosition | None,
    ) -> None:
        """Deliver a batch from a kernel of the cluster."""
        for record in data["records"]:
            if record["kind"] == Kind.VALUE:
                self.on_value(rank, buffers[0], record["python"])
                return
        if self.elastic is not None:
            self.elastic.hear(kernel, data["records"])
        self.to_run(rank, data, buffers, position)

    def to_run(
        self, rank: int, data: dict[str, Any], _buffers: Sequence[bytes], position: JournalPosition | None
    ) -> None:
        """Deliver a batch only to its run. Used for batches from a journal, because the journal's rank may be lost."""
        if (run := self.runs.get(data["run"])) is not None:
            run.add_records(rank, *data["records"], position=position)
