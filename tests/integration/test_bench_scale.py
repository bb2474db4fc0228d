"""Tests the scale benchmark with small sizes. Hub, proxy and drivers are real, but servers and ranks are fake."""

from __future__ import annotations

import pytest

from bench.scale import measure
from bench.scale.load import Load


@pytest.mark.release
def test_the_scale_bench_prints_its_table_and_its_limits(capfd):
    load = Load(in_turns=5, requests=10, per_second=20.0, at_once=2, seconds=0.5)
    records = {one.name: one for one in measure(1, user_sizes=(2, 4), rank_sizes=(1, 8), load=load)}
    printed = capfd.readouterr().out
    assert "Servers and kernels are stand-ins" in printed
    rows = [line.split() for line in printed.splitlines()]
    assert ["users,", "each", "with", "a", "server", "2", "4", "growth"] in rows
    assert ["ranks", "1", "8", "growth"] in rows
    assert records["scale_api_milliseconds_4"].limit == "<= 200"
    assert records["scale_fanout_growth_exponent"].limit == "<= 1.0"
    assert records["scale_users_first_limit"].value == min(
        records["scale_users_proxy"].value, records["scale_users_hub"].value
    )
    assert records["scale_start_seconds_2"].kept
    assert all(one.value >= 0 for name, one in records.items() if name.startswith("scale_fanout_milliseconds"))
