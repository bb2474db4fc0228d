"""Collects this rank's records and sends them to the driver in batches over a Jupyter comm.

`Reporter` works with any ``publish`` function. The functions below the class use the single reporter of this process.
Before `install`, or without a kernel, records are accepted and dropped.
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
"""Maximum number of messages per second from all ranks together.

One driver can read this many messages without slowing down the user's own work.
"""
USAGE_SECONDS = 1.0
BATCH_RECORDS = 2000
"""Maximum number of records in a message.

This many records take about 200 kB of JSON, which is well below the limits of websockets and the proxy.
"""

Record = dict[str, Any]
Item = Record | Callable[[], Record]
"""A record, or a function that is called to create the record when it is sent."""


class Publish(Protocol):
    """Sends one message to the driver. It may be called from any thread."""

    def __call__(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send ``data`` and raw ``buffers``."""


def send_seconds(size: int) -> float:
    """Return the interval in seconds between two messages from a rank. It grows with the world ``size``."""
    return max(SEND_SECONDS, size / MESSAGES_PER_SECOND)


class Reporter:
    """Queues records and sends them in order, every `send_seconds` seconds. `flush` sends them immediately."""

    def __init__(self) -> None:
        self.run = ""
        self._publish: Publish | None = None
        self._queue: deque[Item] = deque()
        # Held while records are taken and sent, so that the sender's thread and `flush` keep the records in order. It
        # is re-entrant, because a KeyboardInterrupt between cells may run `flush` again in the same thread.
        self._sending = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def connected(self) -> bool:
        """True if the records are sent to a driver."""
        return self._publish is not None

    def connect(self, publish: Publish) -> None:
        """Start sending with ``publish``."""
        self._publish = publish
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="farandole-reporter", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send the queued records and stop the thread."""
        self.flush()
        self._publish = None
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None

    def begin(self, run: str) -> None:
        """Attribute the following records to a run, and sample this process's resource usage until `end`."""
        self.flush()
        usage.model_memory().clear()
        self.run = run
        self._wake.set()

    def end(self) -> None:
        """Send the queued records and leave the run."""
        self.flush()
        self.run = ""

    def put(self, item: Item) -> None:
        """Queue a record, or a function that returns one. This takes less than a microsecond."""
        if self._publish is None:
            return
        self._queue.append(item)
        if not self._wake.is_set():
            self._wake.set()

    def send(self, record: Record, buffers: list[bytes] | None = None) -> None:
        """Send a record immediately, after all queued records."""
        with self._sending:
            self.flush()
            if self._publish is not None:
                self._publish(self._message([record]), buffers)

    def flush(self) -> None:
        """Send all queued records before returning."""
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
            # An idle rank sleeps until a record is queued. During a run, it wakes every second to sample its usage.
            self._wake.wait(USAGE_SECONDS if self.run else None)
            self._wake.clear()
            if self.run and time.monotonic() >= next_usage:
                next_usage = time.monotonic() + USAGE_SECONDS
                self._queue.append(usage.sample(context.rank()))
            self.flush()


@functools.cache
def current() -> Reporter:
    """Return the reporter of this process."""
    return Reporter()


def install() -> None:
    """Connect this kernel's reporter to the driver. A second call does nothing."""
    reporter = current()
    if reporter.connected:
        return
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    reporter.connect(_comm_publisher())
    # post_execute also fires for silent requests, unlike post_run_cell. The kernel replies only after
    # `flush` has returned, so all reports of a cell arrive before the reply.
    shell.events.register("post_execute", reporter.flush)


def send(record: Record, buffers: list[bytes] | None = None) -> None:
    """Send one record immediately, after all queued records."""
    current().send(record, buffers)


def _comm_publisher() -> Publish:
    import comm

    # The fixed id lets a driver recognize the messages if it attaches after the comm was opened.
    channel = comm.create_comm(target_name=protocol.COMM_TARGET, comm_id=protocol.COMM_TARGET, data={})

    def publish(data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        channel.send(data=data, buffers=buffers)

    return publish
