"""Lets a cell end with one error and one reply, even if a second interrupt arrives meanwhile.

The driver interrupts a rank that is blocked in a collective, another thread unblocks the rank, and the driver
interrupts it again. The first interrupt may already have ended the cell:

- While IPython formats the traceback, it would print "KeyboardInterrupt" instead. The user would see this above the
  error of the rank that failed. Interrupts are therefore ignored meanwhile.
- While ipykernel 7.4 prepares its reply, it would never reply, and the driver would wait forever.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.getipython import get_ipython

REQUEST = "execute_request"


def install() -> None:
    """Install the handlers in this process's kernel. Do nothing outside a kernel or if they are already installed."""
    shell: Any = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and not isinstance(kernel.shell_handlers.get(REQUEST), ReplyOnInterrupt):
        kernel.shell_handlers[REQUEST] = ReplyOnInterrupt(kernel)
        shell.showtraceback = uninterrupted(shell.showtraceback)


def uninterrupted(call: Any) -> Any:
    """Return a function that calls ``call`` and ignores interrupts meanwhile."""

    def wrapper(*args: Any, **options: Any) -> Any:
        with _without_interrupts():
            return call(*args, **options)

    return wrapper


@contextmanager
def _without_interrupts() -> Iterator[None]:
    # Signals reach only the main thread, and only that thread may set a handler.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


class ReplyOnInterrupt:
    """Handles execute requests, and sends an error reply if an interrupt prevents the kernel's own reply."""

    def __init__(self, kernel: Any) -> None:
        self._session = kernel.session
        self._handle = kernel.shell_handlers[REQUEST]

    async def __call__(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Handle a request. If the kernel has already replied, the driver ignores the second reply."""
        try:
            await self._handle(stream, ident, parent)
        except KeyboardInterrupt:
            content = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            self._session.send(stream, "execute_reply", content, parent, ident=ident)
