"""Removes work that a rank's kernel does not need, which is about half of the overhead of a short cell.

This module patches objects of ipykernel in this process. The patches were written for ipykernel 7.4.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from ipykernel import ipkernel
from IPython.core.getipython import get_ipython

from farandole.ranks.kernel.descriptors import DescriptorReader
from farandole.ranks.kernel.early_replies import mark_early_replies

MOST_REMEMBERED = 8
"""The maximum number of cached signatures. The kernel needs one, unless user code replaces methods of the shell."""


def make_lean() -> None:
    """Disable the echo of code, busy statuses, sleeps, unused log records and flushes, and mark early replies.

    Do nothing on later calls.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None or kernel._publish_execute_input is _publish_nothing:
        return
    # The driver is the only client, and it already has the code of the cell.
    kernel._publish_execute_input = _publish_nothing
    publications = mark_early_replies(kernel)
    # This sleep before each reply gives output time to arrive, for which each flush below waits instead.
    kernel._execute_sleep = 0.0
    # The handlers discard records below this level, but the kernel would still create five of them for each cell.
    kernel.log.setLevel(kernel.parent.log_level)
    for stream in (sys.stdout, sys.stderr):
        reader = DescriptorReader(stream)
        reader.take_over()
        skip_empty_flushes(stream, reader.drain, publications.note)
    # Otherwise, the kernel would inspect the same signature for each cell.
    ipkernel._accepts_parameters = remember(ipkernel._accepts_parameters)  # type: ignore[attr-defined]


def remember(accepts: Callable[[Any, list[str]], dict[str, bool]]) -> Callable[[Any, list[str]], dict[str, bool]]:
    """Return a function that caches the results of ``accepts``."""
    cached = functools.lru_cache(MOST_REMEMBERED)(lambda method, names: accepts(method, list(names)))
    return lambda method, names: cached(method, tuple(names))


def skip_empty_flushes(stream: Any, drain: Callable[[], None], note: Callable[[], None]) -> None:
    """Make ``stream.flush`` do nothing if nothing has been written since the last flush.

    The kernel flushes both streams twice per cell, and each flush waits for the thread that publishes output. If the
    user's code has written output, a flush still waits for this thread. Each flush first calls ``drain``, which may
    write to the stream. ``note`` is called for each write.
    """
    write, flush, process = stream.write, stream.flush, os.getpid()
    latest, flushed = object(), None

    def note_and_write(text: str) -> Any:
        nonlocal latest
        note()
        try:
            return write(text)
        finally:
            # Set after the write, so that a concurrent flush in another thread causes an extra flush, not a missed one.
            latest = object()

    def flush_if_written() -> None:
        nonlocal flushed
        # A forked child has no publishing thread, so its streams must always be flushed.
        is_child = os.getpid() != process
        if not is_child:
            drain()
        before = latest
        if before is not flushed or is_child:
            flush()
            # Set this only after the flush, so that a concurrent flush in another thread also waits for the text.
            flushed = before

    stream.write, stream.flush = note_and_write, flush_if_written


def _publish_nothing(*_message: object) -> None:
    return None
