"""Dask on workers in containers: other containers of its network do not get in, and a large frame goes to the disk."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.dask_cells import COMPUTE, OPEN, SPILL, assert_refused, dask_addresses
from tests.docker.probes import networks, reached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.kernel import RemoteKernel
    from tests.docker.stack import Stack

CELL_SECONDS = 240.0
USER, OTHER = "tabulae", "spy"
START = "%load_ext farandole\n%cluster start --workers 2 --backend none"
SMALL = "%load_ext farandole\n%cluster start --name small --workers 1 --profile small --backend none"
SMALL_BYTES = 700 * 2**20
"""The memory of the profile in small.toml."""


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Iterator[RemoteKernel]:
    """The kernel of a user with two workers, on which Dask runs."""
    with stack.kernel(USER) as kernel:
        kernel.execute(START, deadline=CELL_SECONDS)
        assert kernel.execute(COMPUTE, deadline=CELL_SECONDS) == "1000.0 2\n"
        yield kernel
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


@pytest.fixture
def spy(stack: Stack, kernel: RemoteKernel) -> Iterator[RemoteKernel]:
    """The kernel of another user, whose notebook server is in the network of the first user, against the rules."""
    [network] = networks(stack, f"{stack.name}-server-{USER}")
    with stack.kernel(OTHER) as spy:
        stack.docker("network", "connect", network, f"{stack.name}-server-{OTHER}")
        try:
            yield spy
        finally:
            stack.docker("network", "disconnect", network, f"{stack.name}-server-{OTHER}")


def test_the_notebook_and_both_workers_connect_to_each_other(kernel: RemoteKernel) -> None:
    """A shuffle sends data between the workers."""
    addresses, _ = dask_addresses(kernel, CELL_SECONDS)
    assert len({host_of(address) for address in addresses}) == 3
    shuffled = 'print(len(frame.shuffle("item").map_partitions(len).compute()))'
    assert kernel.execute(shuffled, deadline=CELL_SECONDS) == "8\n"


def test_only_encrypted_ports_are_open(kernel: RemoteKernel) -> None:
    kernel.execute(OPEN, deadline=CELL_SECONDS)


def test_another_user_in_the_same_network_does_not_get_in(kernel: RemoteKernel, spy: RemoteKernel) -> None:
    addresses, ports = dask_addresses(kernel, CELL_SECONDS)
    targets = [(host_of(address), int(address.rpartition(":")[2])) for address in addresses]
    assert reached(spy, targets) == targets
    assert_refused(spy, addresses, CELL_SECONDS)
    # The HTTP servers listen on the loopback interface of each container.
    assert reached(spy, [(host, port) for host, _ in targets for port in ports]) == []
    assert kernel.execute("print(frame.price.sum().compute())", deadline=CELL_SECONDS) == "1000.0\n"


@pytest.mark.release
def test_a_frame_larger_than_the_memory_of_a_container_is_computed(stack: Stack) -> None:
    with stack.kernel(USER, path="small.ipynb") as kernel:
        kernel.execute(SMALL, deadline=CELL_SECONDS)
        assert kernel.execute(COMPUTE, deadline=CELL_SECONDS) == "1000.0 1\n"
        found = kernel.execute(SPILL, deadline=CELL_SECONDS)
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    [limit] = re.fullmatch(r"True (\d+)\nTrue True\n", found).groups()
    assert SMALL_BYTES / 2 < int(limit) < SMALL_BYTES


def host_of(address: str) -> str:
    return address.removeprefix("tls://").rpartition(":")[0]
