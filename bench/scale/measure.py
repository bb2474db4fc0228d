"""Measure the costs of the hub, the proxy and the drivers with many users, workers and ranks.

Both measurements use the same hub: users first start their servers, and then another user starts clusters. The hub,
the proxy and the drivers are real; the servers and kernels are stand-ins (see `bench.scale.standin`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from bench.record import Record, growth_table
from bench.scale import clusters, users
from bench.scale.load import Load
from bench.scale.spawner import ADDRESS
from bench.site import bench_hub, environment
from hub.process import local_session, wait_until
from spawner_config.local import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USERS = (100, 300, 1000)
RANKS = (1, 4, 16, 64, 256, 1024)
USUAL_LOAD = Load()
CONFIG = Path(__file__).parent / "jupyterhub_config.py"
PROFILES = """
[limits]
workers_per_user = 256
ranks_per_worker = 4

[[profile]]
name = "bench"
description = "A stand-in"
"""


def measure(
    repeats: int, *, user_sizes: Sequence[int] = USERS, rank_sizes: Sequence[int] = RANKS, load: Load = USUAL_LOAD
) -> Iterator[Record]:
    """Yield the measurements, and print tables of their growth."""
    token = secrets.token_hex(16)
    print("Servers and kernels are stand-ins; hub, proxy and drivers are real.")
    print(f"Load average before the bench: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.", flush=True)
    with (
        stand_in() as address,
        environment({ADDRESS: address, "FARANDOLE_BENCH_TOKEN": token}),
        bench_hub(PROFILES, CONFIG) as hub,
    ):
        of_users = asyncio.run(users.measure(hub, token, user_sizes, load))
        print("\n" + growth_table("users, each with a server", of_users.rows), end="\n\n", flush=True)
        yield from users.records(of_users)
        of_clusters = clusters.measure(rank_sizes, repeats)
        print("\n" + growth_table("ranks", of_clusters.rows()), end="\n\n", flush=True)
        yield from clusters.records(of_clusters)


@contextmanager
def stand_in() -> Iterator[str]:
    """Run the stand-in process until the end of the block, and yield its address."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    with subprocess.Popen([sys.executable, "-m", "bench.scale.standin", str(port)]) as process:
        try:
            wait_until(lambda: _answers(address), 30)
            yield address
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    try:
        local_session().get(address, timeout=5)
    except requests.ConnectionError:
        return False
    return True
