"""Finds variables in the user's namespace of a rank."""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean


def variable(name: str) -> Any:
    """Return the value of a variable. Raises UsageError if there is none with this name."""
    shell: Any = get_ipython()
    namespace = shell.user_ns if shell is not None else {}
    if name not in namespace:
        known = [key for key in namespace if not key.startswith("_")]
        raise UsageError(
            f"the ranks have no variable {name!r}; define it in a cell with `%%distributed`.{did_you_mean(name, known)}"
        )
    return namespace[name]
