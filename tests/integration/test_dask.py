"""Dask on the workers of a real hub: `%cluster dask` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError, RemoteKernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

USER, OTHER = "mary", "eve"
SECONDS = 120.0
START = """
%load_ext farandole
%cluster start --workers 2 --backend none
"""
COMPUTE = """
import dask.dataframe as dd, numpy, pandas
client = %cluster dask
frame = dd.from_pandas(pandas.DataFrame({"item": numpy.arange(1000) % 10, "price": 1.0}), npartitions=8).persist()
print(frame.groupby("item").price.sum().compute().sum(), len(client.scheduler_info()["workers"]))
"""
CHECK = 'print(frame.price.sum().compute(), len(client.scheduler_info()["workers"]))'
INTRUDE = """
from distributed import Client, Security
for security in (Security.temporary(), None):
    try:
        Client({address!r}, security=security, timeout=3)
    except Exception as exc:
        print("refused")
"""


@pytest.fixture(scope="module")
def kernel(hub: RunningHub) -> Iterator[RemoteKernel]:
    address = hub.start_notebook(USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), "dask.ipynb") as kernel:
        kernel.execute(START, deadline=SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=SECONDS)


def test_a_frame_is_computed_on_the_workers_and_stays_when_they_are_scaled(kernel: RemoteKernel) -> None:
    assert kernel.execute(COMPUTE, deadline=SECONDS) == "1000.0 2\n"
    kernel.execute("%cluster scale 3", deadline=SECONDS)
    assert kernel.execute(CHECK, deadline=SECONDS) == "1000.0 3\n"
    kernel.execute("%cluster scale 1", deadline=SECONDS)
    assert kernel.execute(CHECK, deadline=SECONDS) == "1000.0 1\n"


def test_another_user_does_not_get_in(hub: RunningHub, kernel: RemoteKernel) -> None:
    kernel.execute("client = %cluster dask", deadline=SECONDS)
    addresses = kernel.execute(
        'print(client.scheduler.address, *client.scheduler_info()["workers"])', deadline=SECONDS
    ).split()
    assert len(addresses) == 2
    with RemoteKernel(hub.start_notebook(OTHER), hub.browser(OTHER).make_token(), "intrude.ipynb") as other:
        for address in addresses:
            assert other.execute(INTRUDE.format(address=address), deadline=SECONDS) == "refused\nrefused\n"


def test_without_a_cluster_the_magic_names_the_remedy(hub: RunningHub) -> None:
    with RemoteKernel(hub.start_notebook(OTHER), hub.browser(OTHER).make_token(), "none.ipynb") as other:
        with pytest.raises(CellError, match="there is no cluster yet"):
            other.execute("%load_ext farandole\n%cluster dask", deadline=SECONDS)
