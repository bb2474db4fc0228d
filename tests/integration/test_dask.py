"""Dask on the workers of a real hub: `%cluster dask` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError, RemoteKernel
from tests.dask_cells import COMPUTE, assert_refused, dask_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

USER, OTHER = "mary", "eve"
SECONDS = 120.0
START = """
%load_ext farandole
%cluster start --workers 2 --backend none
"""
CHECK = 'print(frame.price.sum().compute(), len(client.scheduler_info()["workers"]))'
SHUFFLE = 'print(len(frame.shuffle("item").map_partitions(len).compute()), len(frame.set_index("item").compute()))'
ENDED = """%%distributed
import threading, time
def left():
    return [one.name for one in threading.enumerate() if one.name.startswith("farandole-dask")]
deadline = time.monotonic() + 30
while left() and time.monotonic() < deadline:
    time.sleep(0.1)
assert not left(), left()
"""
WAIT = """
import time
tasks = client.map(time.sleep, [600] * 8, pure=False)
print(*client.gather(tasks))
"""
READ = """
import urllib.error, urllib.request
for port in {ports}:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{{port}}/info/main/workers.html", timeout=5)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.fixture(scope="module")
def address(hub: RunningHub) -> str:
    """The notebook server of the cluster's user."""
    return hub.start_notebook(USER)


@pytest.fixture(scope="module")
def kernel(hub: RunningHub, address: str) -> Iterator[RemoteKernel]:
    with RemoteKernel(address, hub.browser(USER).make_token(), "dask.ipynb") as kernel:
        kernel.execute(START, deadline=SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=SECONDS)


@pytest.fixture(scope="module")
def other(hub: RunningHub) -> Iterator[RemoteKernel]:
    """The kernel of another user of the hub, who has no cluster."""
    address = hub.start_notebook(OTHER)
    with RemoteKernel(address, hub.browser(OTHER).make_token(), "other.ipynb") as other:
        yield other


def test_a_frame_is_computed_on_the_workers_and_stays_when_they_are_scaled(kernel: RemoteKernel) -> None:
    assert kernel.execute(COMPUTE, deadline=SECONDS) == "1000.0 2\n"
    kernel.execute("%cluster scale 3", deadline=SECONDS)
    assert kernel.execute(CHECK, deadline=SECONDS) == "1000.0 3\n"
    kernel.execute("%cluster scale 1", deadline=SECONDS)
    assert kernel.execute(CHECK, deadline=SECONDS) == "1000.0 1\n"


def test_a_shuffle_shows_nothing_but_its_result(kernel: RemoteKernel) -> None:
    assert kernel.execute(COMPUTE, deadline=SECONDS).startswith("1000.0")
    assert kernel.execute(SHUFFLE, deadline=SECONDS) == "8 1000\n"


def test_a_worker_that_was_lost_is_started_again_for_the_tasks_that_wait(hub: RunningHub, kernel: RemoteKernel) -> None:
    """The notebook waits for the tasks, so no cell can start it."""
    kernel.execute("%cluster scale 1", deadline=SECONDS)
    kernel.execute(COMPUTE, deadline=SECONDS)
    hub.kill_server(USER, "main-w0")
    assert kernel.execute(CHECK, deadline=SECONDS).splitlines()[-1] == "1000.0 1"


def test_another_user_does_not_get_in(kernel: RemoteKernel, other: RemoteKernel) -> None:
    kernel.execute(COMPUTE, deadline=SECONDS)
    addresses, ports = dask_addresses(kernel, SECONDS)
    assert len(addresses) >= 2
    assert_refused(other, addresses, SECONDS)
    assert other.execute(READ.format(ports=ports), deadline=SECONDS) == "404\n" * len(ports)


def test_attaching_again_ends_dask_only_if_a_rank_was_lost(kernel: RemoteKernel) -> None:
    kernel.execute(COMPUTE, deadline=SECONDS)
    shown = kernel.execute("%cluster attach", deadline=SECONDS)
    assert shown.startswith("this notebook leads cluster 'main' already\n")
    assert kernel.execute(CHECK, deadline=SECONDS).startswith("1000.0")
    with pytest.raises(CellError):
        kernel.execute("%%distributed --ranks 0\nimport os\nos._exit(1)", deadline=SECONDS)
    shown = kernel.execute("%cluster attach", deadline=SECONDS)
    assert "Dask has ended on cluster 'main'; `%cluster dask` starts it on 'main'\n" in shown
    assert "already" not in shown
    assert kernel.execute(COMPUTE, deadline=SECONDS).startswith("1000.0")


def test_dask_workers_end_with_their_notebook_and_start_again_with_the_next(kernel: RemoteKernel) -> None:
    kernel.execute(COMPUTE, deadline=SECONDS)
    kernel.restart()
    kernel.execute("%load_ext farandole\n%cluster attach", deadline=SECONDS)
    # What Dask logs about the end of the connections is not shown either.
    assert kernel.execute(ENDED, deadline=SECONDS) == ""
    assert kernel.execute(COMPUTE, deadline=SECONDS).startswith("1000.0")


def test_a_cluster_that_another_notebook_stops_does_not_come_back(
    hub: RunningHub, address: str, kernel: RemoteKernel
) -> None:
    """The leading notebook waits for tasks, and restarts lost workers for them."""
    kernel.execute("%cluster scale 2", deadline=SECONDS)
    kernel.execute(COMPUTE, deadline=SECONDS)
    waiting = kernel.begin(WAIT)
    token = hub.browser(USER).make_token()
    with RemoteKernel(address, token, "second.ipynb") as second:
        assert "is stopped" in second.execute("%load_ext farandole\n%cluster stop main", deadline=SECONDS)
    with pytest.raises(CellError, match="lost the connection to the scheduler"):
        kernel.finish(waiting, WAIT, deadline=SECONDS)
    with pytest.raises(CellError, match="was stopped by another notebook"):
        kernel.execute("%cluster status", deadline=SECONDS)
    assert list(hub.api(token, "GET", f"/hub/api/users/{USER}").json()["servers"]) == [""]
    kernel.execute("%cluster start --workers 1 --backend none", deadline=SECONDS)


def test_without_a_cluster_the_magic_names_the_remedy(other: RemoteKernel) -> None:
    with pytest.raises(CellError, match="there is no cluster yet"):
        other.execute("%load_ext farandole\n%cluster dask", deadline=SECONDS)
