"""Numbers the cells and lines of a rank as the user's notebook does, so that tracebacks refer to the notebook.

The driver sends the numbers in the metadata of a request to execute a cell; see `farandole.protocol.CELL_PLACE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.getipython import get_ipython

from farandole.protocol import CELL_PLACE


def install() -> None:
    """Number the cells of this kernel. This function may be called repeatedly."""
    shell = get_ipython()
    if shell is None or shift in shell.input_transformers_post:
        return
    shell.input_transformers_post.append(shift)
    shell.compile.cache = numbered(shell.compile.cache)  # type: ignore[method-assign]


def shift(lines: list[str]) -> list[str]:
    """Return the lines of a cell below as many empty lines as the notebook's cell has above them."""
    return ["\n"] * _place().get("lines_above", 0) + lines


def numbered(cache: Callable[..., str]) -> Callable[..., str]:
    """Return IPython's function ``cache``, which names a cell's code in tracebacks, with the notebook's cell number."""

    def cache_with_number(transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        return cache(transformed_code, _place().get("number", number), raw_code)

    return cache_with_number


def _place() -> dict[str, int]:
    """Return the place of the current request's code in the notebook, or an empty dict if the request has none."""
    kernel: Any = getattr(get_ipython(), "kernel", None)
    parent = kernel.get_parent("shell") if kernel is not None else {}
    return (parent.get("metadata") or {}).get(CELL_PLACE) or {}
