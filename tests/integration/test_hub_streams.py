"""Streams on a hub of this machine: what notebooks and endpoints get, and what remains when a process is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from farandole.streams import hub_broker

from hub.process import processes_of, wait_until
from tests.clients.kernel import RemoteKernel
from tests.nats_server import ignore

if TYPE_CHECKING:
    import psutil

    from tests.hub import RunningHub

USER = "samuel"
SECONDS = 60.0
ROUND_TRIP = """
import farandole as fd
client = await fd.streams.connect()
stream = client.jetstream()
await stream.add_stream(name="calls", subjects=["calls.>"])
await stream.publish("calls.first", b"hello")
reader = await stream.pull_subscribe("calls.>", durable="reader")
[record] = await reader.fetch(1)
print(record.subject, record.data.decode())
await client.close()
"""
VARIABLES = {"FARANDOLE_STREAMS_URL", "FARANDOLE_STREAMS_CREDENTIALS"}


@pytest.fixture(scope="module")
def printed(hub: RunningHub) -> str:
    """What a notebook has printed that has published a record and read it."""
    address = hub.start_notebook(USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), "streams.ipynb") as kernel:
        return kernel.execute(ROUND_TRIP, deadline=SECONDS)


def test_a_notebook_publishes_and_reads_and_workers_get_nothing(hub: RunningHub, printed: str) -> None:
    assert printed == "calls.first hello\n"
    hub.start_worker(hub.token_for(USER), USER, "main-w0")
    assert streams_variables(hub, "") == VARIABLES
    assert streams_variables(hub, "main-w0") == set()


def streams_variables(hub: RunningHub, server: str) -> set[str]:
    return {name for name in hub.environment_of(USER, server) if name.startswith("FARANDOLE_STREAMS")}


# JupyterHub checks every 30 s whether its services run.
@pytest.mark.release
@pytest.mark.usefixtures("printed")
async def test_the_hub_restarts_its_nats_server(hub: RunningHub) -> None:
    broker = hub_broker(hub.environment_of(USER, ""))
    killed = nats_servers(hub)
    assert len(killed) == 1
    killed[0].kill()
    wait_until(lambda: set(nats_servers(hub)) - set(killed), SECONDS)
    client = await broker.connect(error_cb=ignore)
    assert [one.config.name for one in await client.jetstream().streams_info()] == ["calls"]
    await client.close()


def nats_servers(hub: RunningHub) -> list[psutil.Process]:
    """Return the processes of the hub's NATS server."""
    return [one for one in processes_of(hub.state) if one.name() == "nats-server"]
