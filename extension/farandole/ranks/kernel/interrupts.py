"""Make the kernel reply to a cell even if an interrupt arrives between the cell's end and the reply.

The driver interrupts a rank that blocks in a collective, another thread unblocks it, and the driver interrupts again.
The second interrupt may arrive after the first has ended the cell, while the kernel prepares its reply. ipykernel (7.4)
then never replies, and the driver would wait forever.
"""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

REQUEST = "execute_request"


def install() -> None:
    """Install the handler in this process's kernel; does nothing outside a kernel or the second time."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is not None and not isinstance(kernel.shell_handlers.get(REQUEST), ReplyOnInterrupt):
        kernel.shell_handlers[REQUEST] = ReplyOnInterrupt(kernel)


class ReplyOnInterrupt:
    """Handler of execute requests that sends an error reply if an interrupt prevents the kernel's own reply."""

    def __init__(self, kernel: Any) -> None:
        self._session = kernel.session
        self._handle = kernel.shell_handlers[REQUEST]

    async def __call__(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Handle a request. If the first reply was already sent, the driver ignores the second."""
        try:
            await self._handle(stream, ident, parent)
        except KeyboardInterrupt:
            content = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            self._session.send(stream, "execute_reply", content, parent, ident=ident)
