"""Measures streams: records that are lost or scored twice while processes are killed, and how long a record takes."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from farandole.ranks.models.save import save_model
from torch import nn

from bench.record import Record, median_of
from bench.site import environment
from bench.streams.soak import NatsFeed, scoring, soak
from tests.brokers import run_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = 100
SEED = 21
RATE = 1_000
SECONDS = 30
WARM_UP = 2_000
"""Records at the beginning that are not measured."""
MOST_MS = 50.0


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records of streams."""
    with tempfile.TemporaryDirectory(prefix="farandole-streams-") as name, environment({"FARANDOLE_MODELS": name}):
        models = Path(name)
        model = save_model(nn.Linear(4, 3), "bench", example=torch.ones(2, 4), onnx=True) or ""
        yield from _killed(models, model)
        yield _duration(models, model, repeats)


def _killed(models: Path, model: str) -> Iterator[Record]:
    with tempfile.TemporaryDirectory(prefix="farandole-broker-") as name:
        found = asyncio.run(soak(Path(name), models, model, scheme="nats", kills=KILLS, seed=SEED))
    kills = ", ".join(f"{victim} {count}" for victim, count in sorted(found.killed.items()))
    note = f"{found.records:,} records, {KILLS} kills: {kills}; {found.disordered} out of order"
    for what, count in (("lost", found.lost), ("twice", found.twice)):
        yield Record(name=f"stream_{what}", value=count, unit="records", runs=(count,), limit="<= 0", note=note)


def _duration(models: Path, model: str, repeats: int) -> Record:
    """Return the time from sending a record until its output is read, of 99 % of the records."""
    runs, medians = [], []
    for _ in range(repeats):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="farandole-broker-")))
            broker = stack.enter_context(run_broker(folder, "nats"))
            stack.enter_context(scoring(broker, models, model))
            seconds = sorted(asyncio.run(_seconds(broker.url)))
        runs.append(1000 * seconds[int(0.99 * len(seconds))])
        medians.append(1000 * seconds[len(seconds) // 2])
    note = f"at {RATE:,} records a second for {SECONDS} s; median {min(medians):.1f} to {max(medians):.1f} ms"
    return median_of("stream_p99_ms", runs, "ms", limit=f"<= {MOST_MS:g}", note=note)


async def _seconds(url: str) -> list[float]:
    """Send records at `RATE`, and return how many seconds each took, without the first ones."""
    feed = NatsFeed(url)
    await feed.prepare()
    client = await feed.connected()
    outputs = await client.subscribe("decisions")
    count, taken = WARM_UP + RATE * SECONDS, []

    async def receive() -> None:
        for _ in range(count):
            output = await outputs.next_msg(timeout=60)
            taken.append(time.perf_counter() - json.loads(output.data)["sent"])

    receiving = asyncio.create_task(receive())
    await _send(feed, count)
    await receiving
    return taken[WARM_UP:]


async def _send(feed: NatsFeed, count: int) -> None:
    """Send records, `RATE` in each second, whether or not the broker has accepted earlier ones."""
    context = (await feed.connected()).jetstream()
    begun = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(begun + number / RATE - time.perf_counter())
        record = {"input": [1, 2, 3, 4], "sent": time.perf_counter()}
        await context.publish_async("calls", json.dumps(record).encode())
    await context.publish_async_completed()
