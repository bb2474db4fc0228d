"""The reply to one execution on one rank, and the callbacks that receive the output."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from farandole.runs.positions import JournalPosition

CONNECTION_LOST = "ConnectionLost"
UNKNOWN: dict[str, Any] = {
    "status": "error",
    "ename": CONNECTION_LOST,
    "evalue": "the connection to its worker broke, so its outcome is unknown; run it again",
    "traceback": [],
}
"""The reply to a request that may not have reached the kernel, or whose real reply is in no journal."""
DEAD: dict[str, Any] = {"status": "dead"}
"""The reply to a request to a dead kernel."""
UNANSWERED = "stopped, because it did not answer an interrupt"
"""The cause of death of a rank that the driver killed after another rank had failed or the cell was stopped."""
OUTPUT_TYPES = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})

Sink: TypeAlias = Callable[[int, str, dict[str, Any], JournalPosition | None], None]
"""Called with (rank, message type, content, position) for every output message of an execution."""
Records: TypeAlias = Callable[[int, dict[str, Any], list[bytes], JournalPosition | None], None]
"""Called with (rank, comm data, buffers, position) for every batch of rank messages."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How one execution on one rank ended.

    - ``status`` is ok, error or dead.
    - ``ended`` is the time of the end, in seconds of `time.monotonic`.
    - After an error, the kernel has sent ``ename``, ``evalue`` and ``traceback`` (lines with ANSI colours).
    - After a death, ``evalue`` is the cause.
    """

    rank: int
    worker: str
    status: str
    ended: float
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()
    value: Any = None


class Execution:
    """A request to execute code, which is done when its reply arrives. The worker sends the reply after all output."""

    def __init__(self, sink: Sink | None, run: str = "") -> None:
        self.sink = sink
        self.run = run
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def settle(self, reply: dict[str, Any]) -> None:
        """End the execution with this reply, unless the execution has already ended."""
        if not self.done.done():
            self.done.set_result(reply)


def reply_of(content: dict[str, Any], *, rank: int, worker: str, death: str | None) -> Reply:
    """Convert the content of a kernel's reply message, or of `DEAD`, to a `Reply`."""
    if content["status"] == "dead":
        return Reply(rank=rank, worker=worker, status="dead", ended=time.monotonic(), evalue=death or "")
    result = content.get("user_expressions", {}).get("value", {"status": "ok"})
    outcome = content if content["status"] != "ok" else result
    return Reply(
        rank=rank,
        worker=worker,
        status="ok" if outcome["status"] == "ok" else "error",
        ended=time.monotonic(),
        ename=outcome.get("ename", ""),
        evalue=outcome.get("evalue", ""),
        traceback=tuple(outcome.get("traceback", ())),
        value=_value(result) if outcome["status"] == "ok" and "data" in result else None,
    )


def _value(result: dict[str, Any]) -> Any:
    """Return the value of a user expression. The kernel sends the ``repr`` of the value's JSON text."""
    return json.loads(ast.literal_eval(result["data"]["text/plain"]))
