"""Executes a Python file in the user's namespace, as ``python FILE ARGUMENTS`` does. The driver sends the code."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython


def run(code: str, path: str, arguments: list[str]) -> None:
    """Execute the code of the file at ``path``, which need not exist on this machine."""
    shell: Any = get_ipython()
    # Tracebacks show the lines in this cache. Without a modification time, they are never read again from the disk.
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    with _environment(path, arguments, shell.user_ns):
        try:
            exec(compile(code, path, "exec", dont_inherit=True), shell.user_ns)
        except BaseException as error:
            _hide_this_module(shell, error)
            raise


@contextmanager
def _environment(path: str, arguments: list[str], namespace: dict[str, Any]) -> Iterator[None]:
    """Set what Python sets for a file: ``sys.argv``, ``__file__``, and the file's folder in ``sys.path``."""
    argv, folder = sys.argv, str(Path(path).parent)
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    namespace["__file__"] = path
    try:
        yield
    finally:
        sys.argv = argv
        if folder in sys.path:
            sys.path.remove(folder)
        namespace.pop("__file__", None)


def _hide_this_module(shell: Any, error: BaseException) -> None:
    """Make IPython show only the frames of the file and of what the file calls."""
    traceback = error.__traceback__.tb_next if error.__traceback__ else None
    if traceback is not None and not hasattr(error, "_render_traceback_"):
        format_lines = shell.InteractiveTB.structured_traceback
        error._render_traceback_ = lambda: format_lines(type(error), error, traceback, tb_offset=0)  # type: ignore[attr-defined]
