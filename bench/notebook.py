"""A real IPython shell, as in a notebook's kernel, for the magics of Farandole and ipyparallel."""

from __future__ import annotations

import io
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import ipyparallel
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole import Cluster


def make_shell() -> InteractiveShell:
    """Return the shell of this process, with Farandole's magics."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    with silence():
        shell.run_line_magic("load_ext", "farandole")
    return shell


def seconds(shell: InteractiveShell, magic: str, line: str, cell: str) -> float:
    """Run a cell magic and return its duration."""
    with silence():
        start = time.perf_counter()
        shell.run_cell_magic(magic, line, cell)
        return time.perf_counter() - start


@contextmanager
def farandole(shell: InteractiveShell, options: str) -> Iterator[Cluster]:
    """Run one of our clusters, started by its magic."""
    with silence():
        cluster: Cluster = shell.run_line_magic("cluster", f"start {options}")
    try:
        yield cluster
    finally:
        with silence():
            shell.run_line_magic("cluster", "stop")


@contextmanager
def px(engines: int) -> Iterator[ipyparallel.DirectView]:
    """Run an ipyparallel cluster; ``%%px`` uses all its engines."""
    cluster = ipyparallel.Cluster(n=engines, log_level=40)
    try:
        with silence():
            view = cluster.start_and_connect_sync()[:]
            view.activate()
        yield view
    finally:
        with silence():
            cluster.stop_cluster_sync()


@contextmanager
def silence() -> Iterator[None]:
    """Suppress all output, progress bars included."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
