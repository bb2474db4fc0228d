"""Replies to executions on a rank, and the types of the callbacks that receive output."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from farandole.protocol import WORLD_LEFT
from farandole.runs.positions import JournalPosition

CONNECTION_LOST = "ConnectionLost"
UNKNOWN: dict[str, Any] = {
    "status": "error",
    "ename": CONNECTION_LOST,
    "evalue": "the connection to the rank's worker broke, so the outcome on this rank is unknown; try again",
    "traceback": [],
}
"""The reply used if a request may not have reached the kernel, or if the real reply is not in a journal."""
DEAD: dict[str, Any] = {"status": "dead"}
"""The reply used for every request to a dead kernel."""
UNANSWERED = "stopped, because it did not answer an interrupt"
"""The cause of death of a rank that the driver killed because the rank did not respond to an interrupt."""
OUTPUT_TYPES = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})

Sink: TypeAlias = Callable[[int, str, dict[str, Any], JournalPosition | None], None]
"""A callback that gets the rank, message type, content and position of every output message of an execution."""
Records: TypeAlias = Callable[[int, dict[str, Any], list[bytes], JournalPosition | None], None]
"""A callback that gets the rank, comm data, buffers and position of every batch of rank messages."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The outcome of one execution on one rank.

    - ``status`` is ok, error or dead.
    - ``ended`` is the time at which the execution ended, as a value of `time.monotonic`.
    - After an error, ``ename``, ``evalue`` and ``traceback`` are those that the kernel sent. The lines of the traceback
      contain ANSI colors.
    - After a death, ``evalue`` is the cause of death.
    - ``late`` is `RankKernel.late`.
    - ``left`` is true if the rank is no longer in its world, for example after ``hvd.shutdown()``.
    """

    rank: int
    worker: str
    status: str
    ended: float
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()
    value: Any = None
    late: bool = False
    left: bool = False


class Execution:
    """A request to execute code, which is done as soon as its reply arrives. All output arrives before the reply."""

    def __init__(self, sink: Sink | None, run: str = "") -> None:
        self.sink = sink
        self.run = run
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def settle(self, reply: dict[str, Any]) -> None:
        """End the execution with this reply unless it has already ended."""
        if not self.done.done():
            self.done.set_result(reply)


def reply_of(content: dict[str, Any], *, rank: int, worker: str, death: str | None, late: bool = False) -> Reply:
    """Convert the content of a kernel's reply message, or `DEAD`, to a `Reply`."""
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
        late=late,
        left=WORLD_LEFT in content.get("user_expressions", {}),
        value=_value(result) if outcome["status"] == "ok" and "data" in result else None,
    )


def _value(result: dict[str, Any]) -> Any:
    """Return the value of a user expression, which the kernel sends as the ``repr`` of a JSON string."""
    return json.loads(ast.literal_eval(result["data"]["text/plain"]))
