"""A rank tells the driver what its mode of `fd.sync` costs."""

import time

import pytest
from farandole.protocol import Kind, checked_sync
from farandole.ranks.metrics import reporter
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Asynchronous, Auto, Compressed, Local, Step


@pytest.fixture
def sent(monkeypatch):
    records = []
    monkeypatch.setattr(reporter, "send", records.append)
    return records


def test_the_figures_are_shares_of_the_time_since_the_first_step(sent):
    figures = Figures()
    figures.show(Local())
    assert sent == []
    for _ in range(4):
        figures.begin_step()
        figures.sent += 100
        with figures.waiting(3):
            time.sleep(0.05)
        time.sleep(0.05)
        if figures.end_step():
            figures.show(Local())
    assert len(sent) == 1  # after the first step, and no other within a second
    figures.show(Local())
    last = sent[-1]
    assert (last["kind"], last["bytes_per_step"], last["staleness"]) == (Kind.SYNC, 100, 3)
    assert 0.2 < last["waiting"] < 0.8
    assert checked_sync(last) == {name: last[name] for name in ("mode", "waiting", "bytes_per_step", "staleness")}


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (Local(), "local, fp16 every 16 steps"),
        (Local(every=1, delay=0, payload="fp32"), "local, fp32 every step"),
        (Asynchronous(every=8), "asynchronous, fp16 every 8 steps"),
        (Auto(), "auto"),
        (Step(), "step"),
        (Compressed("fp16"), "compressed, fp16"),
        (Compressed("powersgd", 4), "compressed, powersgd rank 4"),
    ],
)
def test_a_mode_is_named_with_its_interval_and_payload(mode, text):
    assert str(mode) == text


@pytest.mark.parametrize(
    "record",
    [
        3,
        {},
        {"mode": "x", "waiting": 0, "bytes_per_step": None, "staleness": 0},
        {"mode": "x", "waiting": "0", "bytes_per_step": 1, "staleness": 0},
    ],
)
def test_wrong_figures_are_refused(record):
    with pytest.raises(ValueError, match="a record of a sync mode must"):
        checked_sync(record)
