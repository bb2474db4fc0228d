from __future__ import annotations

import json

import pytest

from bench.record import growth_exponent, growth_table, median_of, ratio_of_pairs, save, table


def test_the_ratio_is_the_median_of_the_ratios_of_pairs():
    record = ratio_of_pairs("r", [(1.0, 2.0), (3.0, 3.0), (9.0, 10.0)], limit="<= 0.9", note="s")
    assert record.value == 0.9
    assert record.runs == (0.5, 1.0, 0.9)
    assert record.note == "3 : 3, s"
    assert record.kept


@pytest.mark.parametrize(("limit", "kept"), [("<= 1.9", False), ("<= 2.0", True), (">= 2.1", False), ("", True)])
def test_a_value_is_within_its_limit_or_not(limit, kept):
    assert median_of("m", [1.0, 2.0, 3.0], "s", limit=limit).kept is kept


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_growth_exponent_is_the_power_of_the_size(power):
    assert growth_exponent({size: 3 * size**power for size in (1, 2, 8, 64)}) == pytest.approx(power)


def test_a_growth_table_has_a_column_for_each_size_and_the_fitted_power():
    lines = growth_table("ranks", {"ms": {1: 2.0, 10: 20.0, 1000: 2000.0}, "MB": {10: 5.0, 1000: 5.0}}).splitlines()
    assert [line.split() for line in lines] == [
        ["ranks", "1", "10", "1,000", "growth"],
        ["ms", "2", "20", "2,000", "n^1.00"],
        ["MB", "5", "5", "n^0.00"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_the_table_marks_missed_limits():
    lines = table([median_of("fast", [1.0], "s", limit="<= 2"), median_of("slow", [3.0], "s", limit="<= 2")])
    assert [line.rpartition(" ")[2] for line in lines.splitlines()[1:]] == ["ok", "MISSED"]


def test_saving_keeps_the_results_of_other_benches(tmp_path):
    path = tmp_path / "results.json"
    save([median_of("a", [1.0], "s")], path)
    save([median_of("b", [2.0, 4.0, 3.0], "ms")], path)
    assert json.loads(path.read_text()) == {
        "a": {"value": 1.0, "unit": "s", "runs": [1.0]},
        "b": {"value": 3.0, "unit": "ms", "runs": [2.0, 4.0, 3.0]},
    }
