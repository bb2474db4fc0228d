"""Makes the kernel reply to a cell even if an interrupt arrives between the end of the cell and the reply.

The driver interrupts a rank that is blocked in a collective, another thread unblocks the rank, and the driver
interrupts it again. The second interrupt may arrive when the first interrupt has already ended the cell and the kernel
is preparing its reply. ipykernel 7.4 then never replies, and the driver would wait forever.
"""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

REQUEST = "execute_request"


def install() -> None:
    """Install the handler in this process's kernel. Do nothing outside a kernel or if it is already installed."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is not None and not isinstance(kernel.shell_handlers.get(REQUEST), ReplyOnInterrupt):
        kernel.shell_handlers[REQUEST] = ReplyOnInterrupt(kernel)


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
