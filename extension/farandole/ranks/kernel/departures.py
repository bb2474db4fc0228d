"""Tells the driver that a cell has left the rank's world, for example with ``hvd.shutdown()``.

The reply to a request contains the values of its expressions. Another expression in each request would delay each cell
by half a millisecond, so this adds an entry to the reply only if the world is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.getipython import get_ipython

from farandole.protocol import WORLD_LEFT


def install(exists: Callable[[], bool]) -> None:
    """Install this in the process's kernel. Do nothing outside a kernel or if it is already installed."""
    shell: Any = get_ipython()
    if shell is not None and not isinstance(shell.user_expressions, UserExpressions):
        shell.user_expressions = UserExpressions(shell.user_expressions, exists)


class UserExpressions:
    """Replaces the shell's method ``user_expressions``."""

    def __init__(self, evaluate: Callable[[Mapping[str, str]], dict[str, Any]], exists: Callable[[], bool]) -> None:
        self._evaluate = evaluate
        self._exists = exists

    def __call__(self, expressions: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the expressions, and `WORLD_LEFT` if the world does not exist."""
        values = self._evaluate(expressions)
        return values if self._exists() else {**values, WORLD_LEFT: True}
