"""Tests for measuring the resources that a worker uses: processes, network and GPUs."""

import asyncio
import subprocess
import sys

import pytest
from farandole.server.panel import wire
from farandole.server.worker.usage import UsageMeter, parse_gpus

from tests.unit.server.panel.test_wire import misfit

BURN = "import sys\nx = bytearray(50_000_000)\nprint('on', flush=True)\nwhile True: pass"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


async def test_child_processes_count_and_rates_need_two_samples(monkeypatch):
    monkeypatch.setenv("CPU_LIMIT", "2")
    monkeypatch.setenv("MEM_LIMIT", str(2**30))
    clock = Clock()
    meter = UsageMeter(command="/no/nvidia-smi", clock=clock)
    first = await meter.sample()
    assert misfit(first, wire.Usage) is None
    assert (first["cpu"], first["received"], first["gpus"]) == (None, None, [])
    assert (first["cpus"], first["memory_limit"]) == (2.0, 2**30)
    with subprocess.Popen([sys.executable, "-c", BURN], stdout=subprocess.PIPE) as burning:
        try:
            burning.stdout.readline()
            async with asyncio.timeout(60):
                clock.now += 1
                while (await meter.sample())["cpu"] < 2:
                    await asyncio.sleep(0.2)
                    clock.now += 1
            last = await meter.sample()
            assert last["memory"] > first["memory"] + 40_000_000
        finally:
            burning.kill()
    assert misfit(last, wire.Usage) is None
    clock.now += 1
    assert (await meter.sample())["memory"] < last["memory"] - 40_000_000


async def test_an_immediate_second_request_gets_the_same_sample():
    clock = Clock()
    meter = UsageMeter(command="/no/nvidia-smi", clock=clock)
    one, other = await asyncio.gather(meter.sample(), meter.sample())
    assert one is other
    clock.now += 0.5
    assert await meter.sample() is one
    clock.now += 1
    assert await meter.sample() is not one


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo '0, 87, 6144, 11264'", [{"index": 0, "percent": 87.0, "memory": 6 * 2**30, "memory_total": 11 * 2**30}]),
        ("echo oh no; exit 9", []),
    ],
)
async def test_gpus_are_read_from_the_driver(tmp_path, script, gpus):
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    assert (await UsageMeter(command=str(command)).sample())["gpus"] == gpus


def test_missing_values_of_a_gpu_are_unknown():
    [mig, other] = parse_gpus("0, [N/A], 10, 100\n\nsome warning\n7, [Not Supported], [N/A], [N/A]\n")
    assert (mig["percent"], mig["memory"]) == (None, 10 * 2**20)
    assert other == {"index": 7, "percent": None, "memory": None, "memory_total": None}
