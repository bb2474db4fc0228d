"""Predictions of the speed of each mode, and the choice of a mode."""

from dataclasses import replace

import pytest
from farandole.ranks.training.sync.choice.gaps import within_limit
from farandole.ranks.training.sync.choice.prediction import (
    AIM,
    LONGEST_INTERVAL,
    Conditions,
    Overhead,
    choose,
    predictions,
    slowest,
)
from farandole.ranks.training.sync.modes import PAYLOADS, Local

FREE = dict.fromkeys(PAYLOADS, Overhead(0.0))


def _conditions(*, step: float = 0.05, all_reduce: float, overheads: dict[str, Overhead] | None = None) -> Conditions:
    return Conditions(step=step, all_reduce=all_reduce, ranks=3, overheads=overheads or FREE)


def test_three_nodes_on_gigabit_train_as_fast_as_measured_there() -> None:
    # Measured in network namespaces: 45 MB of parameters, three ranks, 45 to 50 ms a step.
    gigabit = _conditions(all_reduce=0.477)
    assert gigabit.efficiency(every=1, delay=0, payload="fp32") == pytest.approx(0.095, abs=0.01)
    assert gigabit.efficiency(every=16, delay=0, payload="fp16") == pytest.approx(0.77, abs=0.03)
    assert gigabit.efficiency(every=16, delay=6, payload="fp16") == 1.0


def test_gathering_moves_the_payload_of_each_other_rank() -> None:
    conditions = _conditions(all_reduce=1.0)
    assert conditions.average("fp16") == 0.5
    assert conditions.average("int4") == pytest.approx(2 * (4 / 32) / (4 / 3))


def test_a_fast_network_averages_after_each_step() -> None:
    assert choose(_conditions(all_reduce=0.001)) == Local(every=1, delay=0, payload="fp32")


def test_a_slow_network_averages_as_often_as_the_target_allows() -> None:
    conditions = _conditions(all_reduce=0.477)
    chosen = choose(conditions)
    assert conditions.efficiency(every=chosen.every, delay=chosen.delay, payload=chosen.payload) >= AIM
    assert chosen.every < 16
    for payload in PAYLOADS:
        before = conditions.efficiency(every=chosen.every - 1, delay=chosen.every - 2, payload=payload)
        assert before < AIM


def test_a_chosen_mode_has_the_target_with_a_network_that_is_a_little_slower() -> None:
    # An average in 4 bits takes 99 ms, hardly less than two steps of 50 ms.
    conditions = _conditions(all_reduce=0.53)
    assert conditions.efficiency(every=3, delay=2, payload="int4") >= AIM
    assert choose(conditions) == Local(every=4, delay=3, payload="int4")


def test_of_modes_with_the_same_interval_the_least_delay_is_chosen() -> None:
    conditions = _conditions(all_reduce=0.477)
    chosen = choose(conditions)
    assert chosen == Local(every=3, delay=2, payload="int4")
    earlier = conditions.efficiency(every=chosen.every, delay=chosen.delay - 1, payload=chosen.payload)
    assert earlier < AIM <= conditions.efficiency(every=chosen.every, delay=chosen.delay, payload=chosen.payload)
    # An average that is short beside a step is waited for.
    assert choose(_conditions(step=1.0, all_reduce=0.05)) == Local(every=1, delay=0, payload="fp16")


def test_a_delay_that_is_not_the_default_is_written_in_the_argument() -> None:
    [chosen] = [row for row in predictions(_conditions(all_reduce=0.252), forward=0.0, size=1) if row.chosen]
    assert chosen.mode == 'sync=fd.sync.local(every=3, delay=1, payload="int4")'


def test_the_time_to_encode_counts() -> None:
    costly = FREE | {"int4": Overhead(1.0), "int8": Overhead(1.0)}
    assert choose(_conditions(all_reduce=0.477, overheads=costly)).payload in {"fp32", "fp16"}


def test_what_a_rank_computes_beside_the_training_holds_it_up_only_if_it_is_not_done_in_time() -> None:
    beside = _conditions(all_reduce=1.0, step=0.2, overheads={"int4": Overhead(0.01, encode=0.05, decode=0.1)})
    average = beside.average("int4")
    assert average == pytest.approx(0.1875)
    # With a delay of one step, the rank encodes and sends at once.
    assert beside.stall(delay=1, payload="int4") == pytest.approx(0.01 + 0.05 + average + 0.1 - 0.2)
    # Otherwise it sends after the next step.
    assert beside.stall(delay=2, payload="int4") == pytest.approx(0.01 + average + 0.1 - 0.2)
    assert beside.stall(delay=3, payload="int4") == pytest.approx(0.01)
    fast = _conditions(all_reduce=0.05, step=0.2, overheads={"int4": Overhead(0.01, encode=0.05, decode=0.1)})
    assert fast.stall(delay=1, payload="int4") == pytest.approx(0.01 + 0.05)
    # The next step ends before the rank has encoded what it sends.
    slow = _conditions(all_reduce=1.0, step=0.2, overheads={"int4": Overhead(0.01, encode=0.5, decode=0.1)})
    assert slow.stall(delay=4, payload="int4") == pytest.approx(0.01 + 0.5 - 0.2)


def test_the_largest_overheads_of_all_ranks_count() -> None:
    assert slowest([{"fp16": [1.0, 2.0, 3.0]}, {"fp16": [3.0, 1.0, 2.0]}]) == {"fp16": Overhead(3.0, 2.0, 3.0)}


def test_a_network_that_is_too_slow_for_the_target_gets_the_fastest_mode_within_the_gap() -> None:
    conditions = _conditions(all_reduce=1000.0)
    # Longer intervals would be faster, but have no published gap in accuracy.
    assert choose(conditions) == Local(every=16, delay=6, payload="int4")
    longest = conditions.efficiency(every=LONGEST_INTERVAL, delay=6, payload="int4")
    assert longest > conditions.efficiency(every=16, delay=6, payload="int4")


def test_a_mode_without_a_published_gap_is_not_chosen() -> None:
    for all_reduce in (0.001, 0.05, 0.477, 2.0, 1000.0):
        assert within_limit(choose(_conditions(all_reduce=all_reduce)))


def test_the_speeds_of_three_nodes_on_gigabit_are_those_measured_there() -> None:
    # The figures of the measurement above: 44.7 MB of parameters, a step of 48 ms of which the forward pass is a third.
    gigabit = _conditions(step=0.048, all_reduce=0.477)
    rows = {row.mode: row for row in predictions(gigabit, forward=0.016, size=44_700_000)}
    step, compressed = rows['sync="step"'], rows['sync=fd.sync.compressed("fp16")']
    assert (step.bytes_per_step, compressed.bytes_per_step) == (59_600_000, 29_800_000)
    assert step.efficiency == pytest.approx(0.1, abs=0.01)
    assert compressed.efficiency == pytest.approx(0.18, abs=0.02)
    every_16 = rows["sync=fd.sync.local(every=16)"]
    assert every_16.efficiency == 1.0
    assert every_16.bytes_per_step == 29_800_000 // 16
    assert rows["sync=fd.sync.asynchronous(every=16)"].efficiency == 1.0


def test_a_smaller_payload_does_not_shorten_the_latency() -> None:
    conditions = replace(_conditions(all_reduce=0.0023), latency=0.0022)
    averages = [conditions.average(payload) for payload in ("fp32", "fp16", "int4")]
    assert averages == pytest.approx([0.0023, 0.00225, 0.0022 + 0.0001 * 3 / 16])
    # A measured latency may be longer than the whole all-reduce.
    assert replace(conditions, latency=0.0025).average("int4") == 0.0023


def test_no_mode_seems_to_send_nothing() -> None:
    rows = {row.mode: row for row in predictions(_conditions(step=0.048, all_reduce=0.001), forward=0.016, size=40)}
    # An average of 20 bytes in half precision, every 64 steps.
    assert rows["sync=fd.sync.local(every=64)"].bytes_per_step == 1


def test_an_asynchronous_exchange_sends_changes_and_then_answers_over_the_link_of_rank_0() -> None:
    # Two ranks send and receive 22 MB each in half precision, which takes 1.5 times as long as the all-reduce.
    conditions = _conditions(step=0.1, all_reduce=2.0)
    rows = {row.mode: row for row in predictions(conditions, forward=0.03, size=44_700_000)}
    found = rows["sync=fd.sync.asynchronous(every=16)"]
    assert found.average == pytest.approx(3.0)
    assert found.step == pytest.approx(0.1 + (3.0 - 1.6) / 16)


def test_exactly_one_mode_is_the_choice_of_auto_and_reaches_its_target() -> None:
    for all_reduce in (0.001, 0.05, 0.477, 0.8):
        conditions = _conditions(all_reduce=all_reduce)
        [chosen] = [row for row in predictions(conditions, forward=0.01, size=1_000_000) if row.chosen]
        assert f"every={choose(conditions).every}" in chosen.mode
        assert chosen.efficiency >= 0.95


def test_a_fast_network_hides_the_gradients_behind_the_backward_pass() -> None:
    rows = predictions(_conditions(all_reduce=0.02), forward=0.02, size=1_000_000)
    assert (rows[0].step, rows[0].efficiency) == (0.05, 1.0)


def test_the_conversion_to_half_precision_counts() -> None:
    converting = _conditions(
        step=0.2, all_reduce=0.3, overheads=FREE | {"fp16": Overhead(0.5, encode=0.04, decode=0.02)}
    )
    rows = predictions(converting, forward=0.1, size=1_000_000)
    assert rows[0].step == pytest.approx(0.1 + 0.3)
    assert rows[1].step == pytest.approx(0.1 + 0.15 + 0.04 + 0.02)


def test_a_mode_is_written_as_the_argument_of_prepare() -> None:
    [chosen] = [row for row in predictions(_conditions(all_reduce=1000.0), forward=0.0, size=1) if row.chosen]
    assert chosen.mode == 'sync=fd.sync.local(every=16, payload="int4")'
