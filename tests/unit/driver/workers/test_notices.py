"""Tests that only valid notices are taken from a hub's answer."""

import pytest
from farandole.driver.workers.notices import Notice, parsed

NOTICE = {"by": "olga", "at": 1.5, "text": "Bye.", "servers": ["", "c-w0"]}


def test_notices_keep_their_order_and_unknown_values_are_left_out():
    message = {**NOTICE, "servers": [], "urgent": True}
    assert parsed([NOTICE, message]) == [
        Notice(by="olga", at=1.5, text="Bye.", servers=("", "c-w0")),
        Notice(by="olga", at=1.5, text="Bye.", servers=()),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"by": None},
        {"at": "1.5"},
        {"at": True},
        {"at": float("nan")},
        {"at": 1e300},
        {"at": -1},
        {"text": ["Bye."]},
        {"servers": "c-w0"},
        {"servers": [0]},
        {"servers": None},
    ],
)
def test_a_strange_notice_is_left_out(change):
    assert parsed([{**NOTICE, **change}, NOTICE]) == parsed([NOTICE])


@pytest.mark.parametrize("answer", [None, 5, "notices", {}, {"by": "olga"}, [None, 5, "x", [], {}, {"by": "olga"}]])
def test_an_answer_without_notices(answer):
    assert parsed(answer) == []
