"""The hub in containers stops idle workers, even though its proxy counts the driver's pings as activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.docker.stack import running

if TYPE_CHECKING:
    from pathlib import Path

CELL_SECONDS = 240.0
USER = "ida"


@pytest.mark.release
def test_an_attached_idle_worker_stops_and_the_next_cell_starts_it_again(tmp_path: Path) -> None:
    with (
        running(tmp_path, subnets="10.214.32.0/20", FARANDOLE_IDLE_MINUTES="0.5") as stack,
        stack.kernel(USER) as kernel,
    ):
        notebook = stack.containers()
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 1 --backend none", deadline=CELL_SECONDS)
        assert len(stack.containers()) == 2
        wait_until(lambda: stack.containers() == notebook, CELL_SECONDS)
        said = kernel.execute("%%distributed\nprint(6 * 7)", deadline=CELL_SECONDS)
        assert "worker main-w0 had been idle for" in said
        assert said.rstrip().endswith("42")
