"""The table of published gaps in accuracy, and what it says about modes that have not been measured."""

import re
from pathlib import Path

import pytest
from farandole.ranks.training.sync.choice.gaps import LIMIT_POINTS, PUBLISHED, Gap, gap, within_limit
from farandole.ranks.training.sync.modes import Local

PAGE = Path(__file__).parents[6] / "docs" / "explanation" / "slow-networks.md"


def _mode(every: int, delay: int, payload: str) -> Local:
    return Local(every=every, delay=delay, payload=payload)


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: str(one.mode))
def test_a_measured_mode_has_its_own_gap(one: Gap) -> None:
    assert gap(one.mode) == one.points


@pytest.mark.parametrize(
    ("mode", "points"),
    [
        (_mode(4, 3, "int8"), -0.5),
        (_mode(2, 1, "fp32"), -0.5),
        (_mode(1, 0, "fp16"), -0.5),
        (_mode(6, 4, "int4"), -0.1),
        (_mode(16, 5, "fp16"), -0.1),
        (_mode(16, 7, "fp16"), None),
        (_mode(17, 0, "fp32"), None),
    ],
    ids=str,
)
def test_another_mode_counts_as_one_that_changes_the_training_more(mode: Local, points: float | None) -> None:
    assert gap(mode) == points
    assert within_limit(mode) == (points is not None and points <= LIMIT_POINTS)


def test_a_measured_gap_counts_more_than_that_of_a_mode_that_changes_more() -> None:
    published = [
        Gap(mode=_mode(4, 3, "int4"), points=1.0, source="a"),
        Gap(mode=_mode(4, 2, "int4"), points=3.0, source="b"),
    ]
    assert gap(_mode(4, 2, "int4"), published) == 3.0
    assert gap(_mode(4, 1, "int4"), published) == 1.0


def test_a_warmup_and_a_schedule_do_not_count() -> None:
    assert gap(Local(every=4, delay=3, payload="int4", warmup=0, schedule="quadratic")) == -0.5


def test_the_page_has_the_same_figures() -> None:
    rows = re.findall(
        r'^\| `local\(every=(\d+), delay=(\d+), payload="(\w+)"\)` \| (-?[\d.]+) \|', PAGE.read_text(), re.MULTILINE
    )
    found = [(_mode(int(every), int(delay), payload), float(points)) for every, delay, payload, points in rows]
    assert found == [(one.mode, one.points) for one in PUBLISHED]
