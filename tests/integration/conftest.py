"""Fixtures of the tests that run the notebooks of the folder `notebooks` on a real hub, all as the same user."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import RemoteKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.hub import RunningHub

USER = "lorenz"


@pytest.fixture(scope="session")
def notebook_server(hub: RunningHub) -> str:
    """Start the user's notebook server, and return its address."""
    return hub.start_notebook(USER)


@pytest.fixture
def notebook_home(hub: RunningHub, notebook_server: str) -> Path:
    """The user's home."""
    return hub.state / "homes" / USER


@pytest.fixture
def open_notebook(
    hub: RunningHub, notebook_server: str, notebook_home: Path
) -> Iterator[Callable[[Path], RemoteKernel]]:
    """A function that copies a notebook into the user's home, and opens it in a new kernel."""
    with ExitStack() as kernels:

        def opened(notebook: Path) -> RemoteKernel:
            shutil.copy(notebook, notebook_home)
            token = hub.browser(USER).make_token()
            return kernels.enter_context(RemoteKernel(notebook_server, token, notebook.name))

        yield opened
