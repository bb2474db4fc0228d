"""An interrupt that comes once a cell's code has ended must not cost the driver its answer.

A rank that blocks in a collective is interrupted, let go by another thread and interrupted again. The second one may
come while the kernel, which has ended the cell for the first, is about to reply; ipykernel (7.4) then never does.
"""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

REQUEST = "execute_request"


def install() -> None:
    """Have this process's kernel answer each cell; only once, and nothing outside a kernel."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is not None and not isinstance(kernel.shell_handlers.get(REQUEST), Answering):
        kernel.shell_handlers[REQUEST] = Answering(kernel)


class Answering:
    """A kernel's handler of cells, for which it replies where an interrupt keeps it from that."""

    def __init__(self, kernel: Any) -> None:
        self._session = kernel.session
        self._handle = kernel.shell_handlers[REQUEST]

    async def __call__(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Handle a cell; a second reply, where the first had left already, is nobody's any more."""
        try:
            await self._handle(stream, ident, parent)
        except KeyboardInterrupt:
            content = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            self._session.send(stream, "execute_reply", content, parent, ident=ident)
