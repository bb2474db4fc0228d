"""The NATS server of docker-compose.yml: users are apart, connections are encrypted, and only its port is open."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.docker.probes import networks, reached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.kernel import RemoteKernel
    from tests.docker.stack import Stack

CELL_SECONDS = 60.0
JOIN_SECONDS = 60.0
"""The hub looks every 20 s whether a service was recreated."""
OTHER_PORTS = (22, 80, 1883, 6222, 7422, 7777, 8080, 8222, 9222)
"""Ports of NATS servers for other purposes, and others that a container might listen on."""
CONNECT = """
import farandole as fd, json, nats.js.errors
client = await fd.streams.connect()
stream = client.jetstream()
"""
PUBLISH = """
await stream.add_stream(name="calls", subjects=["calls.>"])
await stream.publish("calls.first", b"secret")
"""
READ = """
record = await stream.get_last_msg("calls", "calls.first")
print("READ", record.data.decode(), client.connected_url.geturl())
"""
SPY = """
heard = []
async def hear(record):
    heard.append(record.subject)
for subject in (">", "calls.>", "_INBOX.>", "$SYS.>"):
    await client.subscribe(subject, cb=hear)
await client.flush()
"""
TRY = """
import asyncio
await client.publish("calls.first", b"from another user")
await client.flush()
await asyncio.sleep(0.5)
print("HEARD", json.dumps(heard))
try:
    await stream.stream_info("calls")
except nats.js.errors.NotFoundError as error:
    print(error.description)
"""


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Iterator[RemoteKernel]:
    """A kernel of a user who is connected to the NATS server, and has a stream with one record there."""
    with stack.kernel("ada") as kernel:
        kernel.execute(CONNECT + PUBLISH, deadline=CELL_SECONDS)
        yield kernel


@pytest.fixture(scope="module")
def grace(stack: Stack) -> Iterator[RemoteKernel]:
    """A kernel of another user who is connected to the NATS server."""
    with stack.kernel("grace") as kernel:
        kernel.execute(CONNECT, deadline=CELL_SECONDS)
        yield kernel


def test_a_notebook_publishes_and_reads_over_an_encrypted_connection(ada: RemoteKernel) -> None:
    assert ada.execute(READ, deadline=CELL_SECONDS) == "READ secret tls://streams:4222\n"


def test_no_user_reads_or_writes_the_subjects_of_another(ada: RemoteKernel, grace: RemoteKernel) -> None:
    grace.execute(SPY, deadline=CELL_SECONDS)
    ada.execute('await stream.publish("calls.second", b"secret")', deadline=CELL_SECONDS)
    found = grace.execute(TRY, deadline=CELL_SECONDS)
    # Grace hears what she wrote herself, once for each subscription that matches.
    assert json.loads(re.search(r"HEARD (.*)", found)[1]) == ["calls.first"] * 2
    assert "stream not found" in found
    assert "READ secret" in ada.execute(READ, deadline=CELL_SECONDS)


def test_only_the_port_of_clients_is_reachable_and_only_in_the_network_of_the_user(
    stack: Stack, ada: RemoteKernel
) -> None:
    [mine] = networks(stack, f"{stack.name}-server-ada")
    found = networks(stack, f"{stack.name}-streams")
    own = (found.pop(mine), 4222)
    others = [(address, 4222) for address in found.values()]
    assert others
    closed = [(own[0], port) for port in OTHER_PORTS]
    assert reached(ada, [("streams", 4222), own, ("streams-api", 4222), *others, *closed]) == [("streams", 4222), own]


@pytest.mark.release
def test_a_recreated_server_has_its_streams_and_joins_the_networks_again(stack: Stack, ada: RemoteKernel) -> None:
    stack.docker("rm", "--force", f"{stack.name}-streams")
    stack.compose("up", "-d", "--no-deps", "streams")
    server = f"{stack.name}-server-ada"
    [mine] = networks(stack, server)
    wait_until(lambda: mine in networks(stack, f"{stack.name}-streams"), JOIN_SECONDS)
    assert "READ secret" in ada.execute(CONNECT + READ, deadline=CELL_SECONDS)
