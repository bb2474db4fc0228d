from __future__ import annotations

import json
import os
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from farandole import protocol
from farandole.ranks.metrics import usage


def test_a_sample_has_the_use_of_this_process():
    usage.sample(3)
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.2:
        pass
    record = usage.sample(3)
    percent = 100 * (time.process_time() - used) / (time.monotonic() - begun)
    assert record["kind"] == protocol.Kind.USAGE
    assert record["rank"] == 3
    assert record["cpu_percent"] == pytest.approx(percent, rel=0.3)
    assert record["memory_bytes"] == pytest.approx(psutil.Process(os.getpid()).memory_info().rss, rel=0.2)
    assert record["time"] == pytest.approx(time.time(), abs=5)
    json.dumps(record, allow_nan=False)


def test_the_traffic_of_the_machine_is_per_second_and_without_the_loopback_interface(monkeypatch):
    counters = {"lo": SimpleNamespace(bytes_recv=9, bytes_sent=9), "eth0": SimpleNamespace(bytes_recv=0, bytes_sent=50)}
    now = 10.0
    # Threads from earlier tests may still be running and reading this clock.
    monkeypatch.setattr(usage.time, "monotonic", lambda: now)
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_options: counters)
    network = usage.Network()
    counters["eth0"].bytes_recv, counters["eth0"].bytes_sent = 4_000, 0
    now += 2
    assert network.rates() == {"received_bytes": 2_000, "sent_bytes": 0}
    monkeypatch.setattr(psutil, "net_io_counters", refused)
    assert network.rates() == {}


def refused(**_options):
    raise PermissionError("/proc/net/dev")


def cuda(**functions):
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True, **functions))


def test_a_gpu_in_use_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", cuda(mem_get_info=lambda: (30, 100), utilization=lambda: 55))
    record = usage.sample(0)
    assert (record["gpu_memory_bytes"], record["gpu_memory_total_bytes"], record["gpu_percent"]) == (70, 100, 55.0)


def test_memory_is_reported_without_nvml(monkeypatch):
    def refuse():
        raise RuntimeError("NVML is not available")

    monkeypatch.setitem(sys.modules, "torch", cuda(mem_get_info=lambda: (30, 100), utilization=refuse))
    record = usage.sample(0)
    assert record["gpu_memory_bytes"] == 70
    assert "gpu_percent" not in record


def test_an_unused_gpu_is_not_woken(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    assert "gpu_memory_bytes" not in usage.sample(0)
