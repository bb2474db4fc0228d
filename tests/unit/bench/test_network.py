"""Tests that the network bench understands the notice in which mode auto says what it has chosen."""

from __future__ import annotations

import json

import pytest
from farandole.ranks.training.sync.choice.prediction import Conditions
from farandole.ranks.training.sync.choice.trial import _sentence
from farandole.ranks.training.sync.modes import PAYLOADS, Local

from bench.network import accuracy

CONDITIONS = Conditions(step=0.048, all_reduce=0.43, ranks=3, overheads=dict.fromkeys(PAYLOADS, 0.002))
SIZE = 44_700_000


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (
            Local(every=8, delay=6, payload="int4"),
            "averaging every 8 steps in 4 bits beside the training, 6 steps late",
        ),
        (
            Local(every=2, delay=1, payload="fp16"),
            "averaging every 2 steps in 16 bits beside the training, 1 step late",
        ),
        (Local(every=64, delay=0, payload="int8"), "averaging every 64 steps in 8 bits"),
        (Local(every=1, delay=0, payload="fp32"), "averaging after each step in 32 bits"),
    ],
)
def test_the_bench_trains_in_the_mode_that_auto_has_chosen(tmp_path, monkeypatch, mode, says):
    sentence = _sentence(CONDITIONS, mode, SIZE)
    assert sentence.startswith(f"an average of 44.7 MB takes 430 ms here, a step 48 ms: {says}")
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"network_efficiency_3": {"value": 0.96, "note": f"0.18 : 0.19, {sentence}"}}))
    monkeypatch.setattr(accuracy, "RESULTS", results)
    chosen, efficiency = accuracy._chosen(3)
    arguments = f'every={mode.every}, delay={mode.delay}, payload="{mode.payload}", warmup=30'
    assert (chosen, efficiency) == (f"fd.sync.local({arguments})", 0.96)
    with pytest.raises(SystemExit, match=r"has no network_efficiency_2; run bench/run\.py --only network first"):
        accuracy._chosen(2)


def test_auto_says_if_no_mode_is_fast_enough():
    sentence = _sentence(CONDITIONS, Local(every=1, delay=0, payload="fp32"), SIZE)
    assert sentence.endswith(
        "in 32 bits, which is the fastest mode with a published accuracy gap of at most 2 points, "
        "with 0.10 of the speed"
    )
    fast = Local(every=16, delay=6, payload="int4")
    assert "fastest" not in _sentence(CONDITIONS, fast, SIZE)
