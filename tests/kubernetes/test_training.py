"""Training on worker pods: with both backends, for two users, and while the hub or the proxy is recreated."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.cells import SUM
from tests.docker.test_stack import CELL_SECONDS, ENOUGH, REPORTED, REPORTING

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

COMPLETE = "print(run.status, sorted(set(run.dataframe().step)) == list(range(run.result)), run.result)"


@pytest.mark.parametrize("backend", ["horovod", pytest.param("torch", marks=pytest.mark.release)])
def test_a_cell_trains_over_two_worker_pods(site: Site, backend: str) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute(f"%cluster start --workers 2 --backend {backend}", deadline=CELL_SECONDS)
        assert site.workers("ada") == ["main-w0", "main-w1"]
        output = kernel.execute(f"%%distributed\n{SUM[backend]}", deadline=CELL_SECONDS)
        assert output.split()[1:3] + output.split()[-1:] == ["ranks", "0-1", "2"], output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    site.wait_gone("ada", "main-w0", "main-w1")


def test_two_users_continue_training_while_the_hub_is_recreated(site: Site) -> None:
    users = ("ada", "grace")
    with ExitStack() as kernels:
        led = {user: kernels.enter_context(site.kernel(user)) for user in users}
        for kernel in led.values():
            kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
            kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        for kernel in led.values():
            kernel.begin(REPORTING)
        wait_for_more(site, users, dict.fromkeys(users, 0))
        before = {user: len(site.reports(user)) for user in users}
        site.kubectl("delete", "pod", site.component("hub"))
        wait_for_more(site, users, before)
        site.kubectl("rollout", "status", "deployment/hub", "--timeout=180s")
        site.wait_ready()
        for user, kernel in led.items():
            site.execute(user, "touch", ENOUGH, server="main-w0")
            wait_until(lambda user=user: site.run_record(user)["status"] != "running", CELL_SECONDS)
            kernel.reconnect()
            status, complete, steps = kernel.execute(COMPLETE, deadline=60).split()
            assert (status, complete) == ("finished", "True")
            assert int(steps) >= before[user] + REPORTED
            kernel.execute("%cluster stop", deadline=CELL_SECONDS)
            site.wait_gone(user, "main-w0", "main-w1")


# tests/integration/test_reattach.py tests the same without containers.
@pytest.mark.release
def test_a_run_continues_while_the_proxy_is_recreated(site: Site) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        kernel.begin(REPORTING)
        wait_for_more(site, ("ada",), {"ada": 0})
        before = len(site.reports("ada"))
        site.kubectl("delete", "pod", site.component("proxy"))
        site.kubectl("rollout", "status", "deployment/proxy", "--timeout=180s")
        wait_for_more(site, ("ada",), {"ada": before})
        site.execute("ada", "touch", ENOUGH, server="main-w0")
        wait_until(lambda: site.run_record("ada")["status"] == "finished", CELL_SECONDS)
        # Wait for the hub to send its routes to the new proxy.
        site.wait_ready()
        steps = [report["step"] for report in site.reports("ada")]
        assert steps == list(range(len(steps)))
        assert len(steps) >= before + REPORTED
    site.browser("ada").stop_notebook()
    site.wait_gone("ada", "main-w0", "main-w1", "")


def wait_for_more(site: Site, users: tuple[str, ...], before: dict[str, int]) -> None:
    """Wait until the newest run of each user has at least `REPORTED` more reports than ``before``."""
    for user in users:
        wait_until(lambda user=user: len(site.reports(user)) >= before[user] + REPORTED, CELL_SECONDS)
