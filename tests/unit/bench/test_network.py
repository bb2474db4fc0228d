"""Tests for the network bench: its trainings, and what it makes of the notice and the predictions of the ranks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from farandole.ranks.training.sync.choice.prediction import Conditions, Overhead
from farandole.ranks.training.sync.choice.trial import _sentence
from farandole.ranks.training.sync.modes import PAYLOADS, Local

from bench.network import accuracy, parameters, plots, prediction
from bench.network.training import MODEL, begins_slowly

CONDITIONS = Conditions(step=0.048, all_reduce=0.43, ranks=3, overheads=dict.fromkeys(PAYLOADS, Overhead(0.002)))
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
    assert sentence.startswith(f"an average of 43 MiB takes 430 ms here, a step 48 ms: {says}")
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"network_efficiency_3": {"value": 0.96, "note": f"0.18 : 0.19, {sentence}"}}))
    monkeypatch.setattr(accuracy, "RESULTS", results)
    chosen, efficiency = accuracy._chosen(3)
    arguments = f'every={mode.every}, delay={mode.delay}, payload="{mode.payload}", warmup=30'
    assert (chosen, efficiency) == (f"fd.sync.local({arguments})", 0.96)
    with pytest.raises(SystemExit, match=r"has no network_efficiency_2; run bench/run\.py --only network first"):
        accuracy._chosen(2)


def test_the_pictures_have_the_times_of_the_notice():
    sentence = _sentence(replace(CONDITIONS, all_reduce=3.82), Local(every=4, delay=3, payload="int4"), SIZE)
    found = plots.TIMES.search(sentence)
    assert (plots._seconds(found["average"]), plots._seconds(found["step"])) == (3.82, 0.048)


def test_auto_says_if_no_mode_is_fast_enough():
    sentence = _sentence(CONDITIONS, Local(every=1, delay=0, payload="fp32"), SIZE)
    assert sentence.endswith(
        "in 32 bits, which is the fastest mode with a published accuracy gap of at most 2 points, "
        "with 0.10 of the speed"
    )
    fast = Local(every=16, delay=6, payload="int4")
    assert "fastest" not in _sentence(CONDITIONS, fast, SIZE)


def test_the_model_of_the_bench_has_the_parameters_of_resnet18_and_trains():
    names = {}
    exec(MODEL, names)
    model = names["Model"](0.0)
    assert 4 * sum(one.numel() for one in model.parameters()) == parameters.PARAMETER_BYTES
    model(torch.ones((), requires_grad=True)).backward()
    assert all(one.grad is not None for one in model.parameters())


@pytest.mark.parametrize(
    ("sync", "slowly"),
    [
        ("fd.sync.auto()", True),
        ("fd.sync.local(every=16)", True),
        ("fd.sync.local(every=16, warmup=0)", False),
        ("fd.sync.asynchronous(every=16)", False),
        ('"step"', False),
    ],
)
def test_the_first_steps_of_a_mode_that_warms_up_are_not_measured(sync, slowly):
    assert begins_slowly(sync) == slowly


def test_each_mode_that_averages_in_each_step_is_a_measured_mode():
    assert set(parameters.EACH_STEP) < set(parameters.MODES.values())


def test_the_error_of_predictions_is_that_of_the_worst_mode():
    record = prediction.errors("error", {"a": 0.11, "b": 0.2}, {"a": 0.1, "b": 0.25})
    assert record.value == pytest.approx(20)
    assert record.runs == pytest.approx((10, 20))
    assert record.note == "ms a step, predicted : measured: a 110 : 100; b 200 : 250"


class Known:
    """Stands for trainings whose accuracies are a function of the training and the split."""

    def __init__(self, accuracy):
        self._accuracy = accuracy

    def accuracies(self, trainings, split):
        return [self._accuracy(training, split) for training in trainings]


def test_the_gap_of_a_mode_is_its_mean_difference_to_mode_step_at_its_own_best_rate():
    def accuracy_of(training, _split):
        assert training.epochs == parameters.SHORT_EPOCHS
        rate, best, noise = {"s": (0.02, 60.0, 0), "a": (0.05, 58.0, 1)}[training.mode]
        return best + noise * (training.seed % 2) if training.rate == rate else 0.0

    modes = {"step": "s", "early": "a"}
    step, early, gap = accuracy._compare(Known(accuracy_of), modes, parameters.SHORT_EPOCHS, "_short")
    assert (step.name, step.value, step.note) == ("network_accuracy_step_short", 60, "learning rate 0.02")
    assert (early.name, early.value, early.note) == ("network_accuracy_early_short", 58.5, "learning rate 0.05")
    assert (gap.name, gap.value, gap.runs) == ("network_accuracy_gap_early_short", 1.5, (2, 1) * 5)
    # Student's t for ten values: 2.262 * 0.527 / sqrt(10)
    assert gap.note == "95 % interval ± 0.38"


def learned(training, split):
    """Return an accuracy that grows with the epochs. Three ranks reach that of one rank after 30 epochs in 38."""
    best = 1 if training.rate == parameters.RATES[1] else 0
    return best + 20 + training.epochs - (8 if training.ranks == 3 else 0) + (10 if split == "test" else 0)


def test_the_time_to_accuracy_is_that_of_the_shortest_schedule_that_reaches_it():
    record = accuracy._time_to_accuracy(Known(learned), 3, "fd.sync.local()", 0.96)
    assert record.value == pytest.approx(38 / 30 / 3 / 0.96)
    assert record.kept
    assert record.note.endswith("48.0 % after 30 epochs, 56.0 % after 38 epochs; 56.0 % with one host after 30")


def test_each_schedule_has_its_own_learning_rate():
    def early(training, split):
        is_best = training.rate == (parameters.RATES[0] if training.epochs == 20 else parameters.RATES[1])
        return (60.0 if split == "valid" else 62.0) if is_best else 0.0

    record = accuracy._time_to_accuracy(Known(early), 2, "fd.sync.local()", 1.0)
    assert record.note == "61.0 % after 20 epochs; 61.0 % with one host after 30"


def test_an_accuracy_that_no_schedule_reaches_takes_for_ever():
    def slow(training, split):
        return learned(training, split) - (30 if training.ranks == 3 else 0)

    record = accuracy._time_to_accuracy(Known(slow), 3, "fd.sync.local()", 0.96)
    assert record.value == float("inf")
    assert not record.kept
