"""An IPython shell that runs the magics of Farandole and ipyparallel, as a notebook's kernel does."""

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
    """Return this process's IPython shell, with Farandole's magics loaded."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    with silence():
        shell.run_line_magic("load_ext", "farandole")
    return shell


def seconds(shell: InteractiveShell, magic: str, line: str, cell: str) -> float:
    """Run a cell magic and return its duration in seconds."""
    with silence():
        start = time.perf_counter()
        shell.run_cell_magic(magic, line, cell)
        return time.perf_counter() - start


@contextmanager
def farandole(shell: InteractiveShell, options: str) -> Iterator[Cluster]:
    """Start a Farandole cluster with ``%cluster start``, and stop it at the end of the block."""
    with silence():
        cluster: Cluster = shell.run_line_magic("cluster", f"start {options}")
    try:
        yield cluster
    finally:
        with silence():
            shell.run_line_magic("cluster", "stop")


@contextmanager
def px(engines: int) -> Iterator[ipyparallel.DirectView]:
    """Start an ipyparallel cluster whose engines ``%%px`` uses, and stop it at the end of the block."""
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
    """Suppress all output, including progress bars."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
