"""The rank's end of the line to its driver: collects rank messages and sends them in batches over a Jupyter comm.

`Reporter` does the work over any ``publish`` function; the functions below it are the one reporter of this process.
Until `install` was called (no kernel, no cluster) everything is accepted and nothing is kept.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from farandole import protocol
from farandole.ranks import context
from farandole.ranks.metrics import usage

SEND_SECONDS = 0.1
MESSAGES_PER_SECOND = 2000
"""Of all ranks together: what one driver, which reads them all, keeps up with beside its user's own work."""
USAGE_SECONDS = 1.0
BATCH_RECORDS = 2000
"""Most records in one message: about 200 kB of JSON, far below what a websocket or the proxy takes."""

Record = dict[str, Any]
Item = Record | Callable[[], Record]
"""A finished record, or a function that finishes it in the sender's thread."""


class Publish(Protocol):
    """Sends one message to the driver; may be called from any thread."""

    def __call__(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send ``data`` and raw ``buffers``."""


def send_seconds(size: int) -> float:
    """Return how long a rank of a world of ``size`` collects before it sends: longer where there are hundreds."""
    return max(SEND_SECONDS, size / MESSAGES_PER_SECOND)


class Reporter:
    """Queues records and sends them in order, every `send_seconds`; `flush` sends what is left at once."""

    def __init__(self) -> None:
        self.run = ""
        self._publish: Publish | None = None
        self._queue: deque[Item] = deque()
        # Held from taking records to having sent them, so that the sender's thread and `flush` keep their order.
        # Re-entrant: a KeyboardInterrupt between cells may run `flush` again in the same thread.
        self._sending = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def connected(self) -> bool:
        """True once there is a driver to send to."""
        return self._publish is not None

    def connect(self, publish: Publish) -> None:
        """Start to send with ``publish``."""
        self._publish = publish
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="farandole-reporter", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send what is left and stop the thread."""
        self.flush()
        self._publish = None
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None

    def begin(self, run: str) -> None:
        """Mark all that follows as part of a run, and sample this process's use of the machine until `end`."""
        self.flush()
        self.run = run
        self._wake.set()

    def end(self) -> None:
        """Send all that belongs to the run and leave it."""
        self.flush()
        self.run = ""

    def put(self, item: Item) -> None:
        """Queue a record, or a function that makes it; costs under a microsecond."""
        if self._publish is None:
            return
        self._queue.append(item)
        if not self._wake.is_set():
            self._wake.set()

    def send(self, record: Record, buffers: list[bytes] | None = None) -> None:
        """Send a record at once, after all that was queued before it."""
        with self._sending:
            self.flush()
            if self._publish is not None:
                self._publish(self._message([record]), buffers)

    def flush(self) -> None:
        """Send everything that is queued before this call returns."""
        with self._sending:
            while self._publish is not None and self._queue:
                self._publish(self._message(self._take()))

    def _take(self) -> list[Record]:
        count = min(len(self._queue), BATCH_RECORDS)
        items = [self._queue.popleft() for _ in range(count)]
        return [item() if callable(item) else item for item in items]

    def _message(self, records: list[Record]) -> dict[str, Any]:
        return {"run": self.run, "rank": context.rank(), "records": records}

    def _work(self) -> None:
        next_usage = 0.0
        while not self._stop.wait(send_seconds(context.size())):
            # An idle rank sleeps until somebody reports; one with a run wakes each second to sample its usage.
            self._wake.wait(USAGE_SECONDS if self.run else None)
            self._wake.clear()
            if self.run and time.monotonic() >= next_usage:
                next_usage = time.monotonic() + USAGE_SECONDS
                self._queue.append(usage.sample(context.rank()))
            self.flush()


@functools.cache
def current() -> Reporter:
    """Return the one reporter of this process."""
    return Reporter()


def install() -> None:
    """Connect this kernel's reporter to its driver; a second call does nothing."""
    reporter = current()
    if reporter.connected:
        return
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    reporter.connect(_comm_publisher())
    # post_execute and not post_run_cell: it also fires for silent requests. The kernel waits for it before it
    # answers, so all of a cell's reports arrive before its reply.
    shell.events.register("post_execute", reporter.flush)


def begin(run_id: str) -> None:
    """Mark all that follows as part of the run ``run_id``."""
    current().begin(run_id)


def end() -> None:
    """Send all that belongs to the run and leave it."""
    current().end()


def flush() -> None:
    """Send everything that is queued before this call returns."""
    current().flush()


def send(record: Record, buffers: list[bytes] | None = None) -> None:
    """Send one rank message at once, after all that was queued before it."""
    current().send(record, buffers)


def _comm_publisher() -> Publish:
    import comm

    # A fixed id: a driver that attaches in mid-run never saw this comm open, and still knows its messages.
    line = comm.create_comm(target_name=protocol.COMM_TARGET, comm_id=protocol.COMM_TARGET, data={})

    def publish(data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        line.send(data=data, buffers=buffers)

    return publish
