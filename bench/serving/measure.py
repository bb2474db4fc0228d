"""Measures endpoints: their throughput, what the hub and its proxy add, their first answer, and switched versions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
import torch
from farandole import Endpoint
from farandole.ranks.models.save import save_model
from torch import nn

from bench.record import Record, median_of, ratio_of_pairs
from bench.serving.load import REQUEST, Outcome, as_many_as_possible, at_a_rate
from bench.site import USER, bench_hub, environment, quiet
from spawner_config.local import SERVING_PYTHON, free_port
from spawner_config.settings import ROOT
from tests.clients.hosts import url_of
from tests.hub import RunningHub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.process import HubProcess

VERSIONS = 11
THROUGHPUT_SECONDS = 10.0
RATE = 50.0
RATE_REQUESTS = 1_000
SWITCH_RATE = 200.0
SWITCH_REQUESTS = 100_000
START_SECONDS = 60.0
RATIO = 0.9
ADDED_MS = 3.0
FIRST_SECONDS = 5.0


class Versioned(nn.Module):
    """Computes something, and returns its version for each row."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("version", torch.tensor(float(version)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * 0 + self.version


@dataclass(frozen=True)
class Served:
    """An endpoint of the hub, the URL for inference at its own port, and the headers with a caller's token."""

    endpoint: Endpoint
    url: str
    headers: dict[str, str]


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records of serving."""
    with tempfile.TemporaryDirectory(prefix="farandole-serving-") as name:
        folder = Path(name)
        # The hub of the bench has its homes elsewhere, so the endpoints get this folder by a variable.
        with environment({"FARANDOLE_MODELS": str(folder)}):
            for version in range(1, VERSIONS + 1):
                save_model(Versioned(version), "bench", example=torch.ones(1, 16), onnx=True)
            with bench_hub(_profiles(folder)) as hub:
                yield _throughput(hub, folder, repeats)
                yield from _through_the_hub(hub, folder, repeats)
                yield from _switched(hub)


def _profiles(folder: Path) -> str:
    return f'[[profile]]\nname = "bench"\ndescription = "bench"\nenvironment = {{ FARANDOLE_MODELS = "{folder}" }}\n'


def _throughput(hub: HubProcess, folder: Path, repeats: int) -> Record:
    pairs = []
    with _endpoint(hub) as served, _bare(folder) as bare:
        sides = (served.url, served.headers), (bare, {})
        for url, headers in sides:
            asyncio.run(as_many_as_possible(url, 2.0, headers))
        for _ in range(repeats):
            ours, theirs = (
                asyncio.run(as_many_as_possible(url, THROUGHPUT_SECONDS, headers)) for url, headers in sides
            )
            pairs.append((ours, theirs))
    return ratio_of_pairs(
        "serving_ratio",
        pairs,
        limit=f">= {RATIO:g}",
        note="requests a second of an endpoint that checks the token : KServe alone",
    )


def _through_the_hub(hub: HubProcess, folder: Path, repeats: int) -> Iterator[Record]:
    first, added = [], []
    public = urlsplit(url_of(hub.url, f"/user/{USER}/serve-bench/v2/models/bench/infer"))
    # The machine's resolver may not know names below localhost.
    url = f"http://127.0.0.1:{public.port}{public.path}"
    for _ in range(repeats):
        with _endpoint(hub) as served:
            headers = {**served.headers, "Host": public.netloc}
            begun = time.perf_counter()
            answer = requests.post(url, json=REQUEST, headers=headers, timeout=30)
            answer.raise_for_status()
            first.append(time.perf_counter() - begun)
            through = asyncio.run(at_a_rate(url, RATE, RATE_REQUESTS, headers))
        with _server(folder) as direct:
            alone = asyncio.run(at_a_rate(direct, RATE, RATE_REQUESTS))
        assert not through.failed + alone.failed, (through.failed + alone.failed)[0]
        added.append(through.p95_ms() - alone.p95_ms())
    yield median_of(
        "serving_overhead_p95_ms", added, "ms", limit=f"<= {ADDED_MS:g}", note=f"at {RATE:g} requests a second"
    )
    yield median_of("serving_first_answer_seconds", first, "s", limit=f"<= {FIRST_SECONDS:g}")


def _switched(hub: HubProcess) -> Iterator[Record]:
    """Yield the requests that failed or got a mixed answer while the version was switched ten times."""
    with _endpoint(hub) as served:
        outcome = asyncio.run(_load_and_switch(served))
    expected = {str(version) for version in range(1, VERSIONS + 1)}
    assert outcome.versions == expected, f"only the versions {outcome.versions} answered: {outcome.failed[:1]}"
    note = (
        f"{SWITCH_REQUESTS:,} requests at {SWITCH_RATE:g}/s, {VERSIONS - 1} switches, "
        f"median {1000 * median(outcome.seconds):.1f} ms, p95 {outcome.p95_ms():.1f} ms"
    )
    for name, count in (("serving_failed", len(outcome.failed)), ("serving_mixed", outcome.mixed)):
        yield Record(name=name, value=count, unit="requests", runs=(count,), limit="<= 0", note=note)


async def _load_and_switch(served: Served) -> Outcome:
    loading = asyncio.create_task(at_a_rate(served.url, SWITCH_RATE, SWITCH_REQUESTS, served.headers))
    for version in range(2, VERSIONS + 1):
        await asyncio.sleep(SWITCH_REQUESTS / SWITCH_RATE / VERSIONS)
        await asyncio.to_thread(served.endpoint.switch, f"bench:{version}")
    return await loading


@contextmanager
def _endpoint(hub: HubProcess) -> Iterator[Served]:
    """Run an endpoint on the hub, and yield how it is called at its own port, without the hub's proxy."""
    endpoint = Endpoint.start("bench:1", progress=quiet)
    try:
        headers = {"Authorization": f"Bearer {endpoint.token(days=1)}"}
        address = RunningHub(hub).environment_of(USER, "serve-bench")["JUPYTERHUB_SERVICE_URL"]
        yield Served(endpoint, f"{address}v2/models/bench/infer", headers)
    finally:
        endpoint.stop()


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Run an endpoint's process without a hub, and yield the URL for inference."""
    port = free_port()
    variables = {"JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}/", "FARANDOLE_MODELS": str(folder)}
    command = [str(SERVING_PYTHON), "-m", "farandole.serving", "--no-login", "bench:1"]
    with _running(command, variables, port) as url:
        yield url


@contextmanager
def _bare(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [str(SERVING_PYTHON), str(ROOT / "bench" / "serving" / "bare.py"), str(folder / "bench" / "1"), str(port)]
    with _running(command, {}, port) as url:
        yield url


@contextmanager
def _running(command: list[str], variables: dict[str, str], port: int) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}/v2/models/bench"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
        try:
            _wait_ready(process, url)
            yield f"{url}/infer"
        finally:
            process.terminate()
            process.wait(30)


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    give_up = time.monotonic() + START_SECONDS
    while True:
        with suppress(requests.ConnectionError):
            if requests.get(f"{url}/ready", timeout=5).ok:
                return
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"the server did not answer at {url}")
        time.sleep(0.1)
