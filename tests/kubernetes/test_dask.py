"""Dask on workers in pods, which connect to each other and to the notebook, and to nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dask_cells import COMPUTE, OPEN, assert_refused, dask_addresses

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

CELL_SECONDS = 240.0
USER, OTHER = "ada", "grace"
START = "%load_ext farandole\n%cluster start --workers 2 --backend none"


def test_dask_runs_on_the_pods_of_a_user_and_another_user_does_not_get_in(site: Site) -> None:
    """The node of the tests enforces no NetworkPolicy, so the pods of another user reach the ports."""
    with site.kernel(USER) as kernel:
        kernel.execute(START, deadline=CELL_SECONDS)
        assert kernel.execute(COMPUTE, deadline=CELL_SECONDS) == "1000.0 2\n"
        kernel.execute(OPEN, deadline=CELL_SECONDS)
        addresses, _ = dask_addresses(kernel, CELL_SECONDS)
        pods = [pod["status"]["podIP"] for pod in site.pods(USER).values()]
        assert sorted(address.split("//")[1].partition(":")[0] for address in addresses) == sorted(pods)
        with site.kernel(OTHER) as other:
            assert_refused(other, addresses, CELL_SECONDS)
        assert kernel.execute("print(frame.price.sum().compute())", deadline=CELL_SECONDS) == "1000.0\n"
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    site.wait_gone(USER, "main-w0", "main-w1")
