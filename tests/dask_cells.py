"""Cells with `%cluster dask` that the tests on a local hub, in containers and in pods run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

COMPUTE = """
import dask.dataframe as dd, numpy, pandas
client = %cluster dask
frame = dd.from_pandas(pandas.DataFrame({"item": numpy.arange(1000) % 10, "price": 1.0}), npartitions=8).persist()
print(frame.groupby("item").price.sum().compute().sum(), len(client.scheduler_info()["workers"]))
"""
ADDRESSES = """
info = client.scheduler_info()
print(client.scheduler.address, *info["workers"])
print(*(one["services"]["dashboard"] for one in (info, *info["workers"].values())))
"""
OPEN = """
import psutil
def opened():
    found = [one.laddr for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN]
    return [f"tls://{address.ip}:{address.port}" for address in found if address.ip != "127.0.0.1"]
assert opened() == [client.scheduler.address], opened()
for address, there in client.run(opened).items():
    assert there == [address], there
"""
"""Checks that a notebook and its ranks listen at the addresses of Dask only, or on the loopback interface."""
INTRUDE = """
from distributed import Client, Security
for address in {addresses}:
    for where, security in ((address, Security.temporary()), (address.replace("tls", "tcp"), None)):
        try:
            Client(where, security=security, timeout=2, set_as_default=False)
            print("JOINED", where)
        except OSError:
            print("REFUSED", where)
"""
SPILL = """
import os
from distributed import wait
def part(number):
    return pandas.DataFrame({"value": numpy.full(2_000_000, float(number))})
before = set(client.run(os.getpid).values())
large = dd.from_map(part, range(50)).persist()
wait(large)
[worker] = client.scheduler_info()["workers"].values()
print(large.value.sum().compute() == 2_000_000 * sum(range(50)), worker["memory_limit"])
print(worker["metrics"]["spilled_bytes"]["disk"] > 0, before == set(client.run(os.getpid).values()))
del large
"""
"""Computes a frame of 800 MB, and shows whether parts of it were on the disk, and whether the rank survived."""


def dask_addresses(kernel: RemoteKernel, seconds: float) -> tuple[list[str], list[int]]:
    """Return the addresses of the scheduler and of the Dask workers, and the ports of their HTTP servers."""
    addresses, ports = (line.split() for line in kernel.execute(ADDRESSES, deadline=seconds).splitlines())
    assert len(addresses) == len(ports)
    return addresses, list(map(int, ports))


def assert_refused(kernel: RemoteKernel, addresses: list[str], seconds: float) -> None:
    """Check that a notebook with another certificate, or without one, cannot join."""
    found = kernel.execute(INTRUDE.format(addresses=addresses), deadline=seconds)
    assert found.count("REFUSED") == 2 * len(addresses), found
    assert "JOINED" not in found, found
