"""Clusters of worker pods: both backends, two users at once, and a hub and a proxy that are made anew meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cells import SUM
from tests.docker.test_stack import CELL_SECONDS

if TYPE_CHECKING:
    from tests.kubernetes.site import Site


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_a_cell_trains_over_two_worker_pods(site: Site, backend: str) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute(f"%cluster start --workers 2 --backend {backend}", deadline=CELL_SECONDS)
        assert site.workers("ada") == ["main-w0", "main-w1"]
        output = kernel.execute(f"%%distributed\n{SUM[backend]}", deadline=CELL_SECONDS)
        assert output.split()[1:3] + output.split()[-1:] == ["ranks", "0-1", "2"], output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    site.wait_gone("ada", "main-w0", "main-w1")
