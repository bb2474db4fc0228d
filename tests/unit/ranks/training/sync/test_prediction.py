"""Predictions of the speed of each mode, and the choice of a mode."""

import pytest
from farandole.ranks.training.sync.modes import PAYLOADS, Local
from farandole.ranks.training.sync.prediction import LONGEST_INTERVAL, Conditions, choose

FREE = dict.fromkeys(PAYLOADS, 0.0)


def _conditions(*, step: float = 0.05, all_reduce: float, overheads: dict[str, float] | None = None) -> Conditions:
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
    assert conditions.efficiency(every=chosen.every, delay=chosen.delay, payload=chosen.payload) >= 0.95
    assert chosen.every < 16
    for payload in PAYLOADS:
        before = conditions.efficiency(every=chosen.every - 1, delay=chosen.every - 2, payload=payload)
        assert before < 0.95


def test_the_time_to_encode_counts() -> None:
    costly = FREE | {"int4": 1.0, "int8": 1.0}
    assert choose(_conditions(all_reduce=0.477, overheads=costly)).payload in {"fp32", "fp16"}


def test_a_network_that_is_too_slow_for_the_target_gets_the_fastest_mode() -> None:
    conditions = _conditions(all_reduce=1000.0)
    assert choose(conditions) == Local(every=LONGEST_INTERVAL, delay=6, payload="int4")
