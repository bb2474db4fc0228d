import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from farandole.ranks.metrics import reporter
from farandole.ranks.metrics.track import Progress, bar, batch_size, track


class Pair(NamedTuple):
    name: str
    x: torch.Tensor


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (torch.zeros(4, 2), 4),
        ([torch.zeros(3), torch.zeros(3)], 3),
        ({"x": {"y": np.zeros((5, 1))}}, 5),
        (Pair("a", torch.zeros(2, 2)), 2),
        (7, None),
        (torch.tensor(1.0), None),
        ([], None),
    ],
)
def test_samples_are_the_first_dimension(item: Any, expected: int | None) -> None:
    assert batch_size(item) == expected


def test_rates_and_totals() -> None:
    seconds = itertools.count(0.0, 0.5)
    progress = Progress("train", 10, clock=lambda: next(seconds))
    progress.add(torch.zeros(8, 1))
    record = progress.record()
    assert (record["done"], record["total"], record["samples"], record["name"]) == (1, 10, 8, "train")
    assert (record["rate"], record["samples_per_second"], record["step_seconds"]) == (2.0, 16.0, 0.5)
    assert bar(record) == "train: 1/10, 2.0 steps/s, 16 samples/s, 0:05 left"


def test_a_record_without_a_new_step_keeps_the_step_time() -> None:
    seconds = itertools.count(0.0, 0.5)
    progress = Progress("train", 1, clock=lambda: next(seconds))
    assert progress.record()["step_seconds"] is None
    progress.add(torch.zeros(8, 1))
    assert [progress.record()["step_seconds"] for _ in range(2)] == [0.5, 0.5]


def test_without_a_run_it_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), "count")) == [0, 1, 2]
    shown, warned = capsys.readouterr()
    assert not warned
    assert shown.endswith("\n")
    assert "count: 3/3" in shown


@pytest.fixture
def records() -> Iterator[list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    reporter.current().connect(lambda data, buffers=None: seen.extend(data["records"]))
    yield seen
    reporter.current().close()
    reporter.current.cache_clear()


def test_the_last_record_is_always_sent(records: list[dict[str, Any]]) -> None:
    list(track(iter(range(100))))
    reporter.current().flush()
    assert (records[0]["done"], records[-1]["done"], records[-1]["total"]) == (0, 100, None)
    assert len(records) < 10
    assert [record["ended"] for record in records] == [False] * (len(records) - 1) + [True]


def test_nested_loops_are_sent_in_the_order_of_their_starts(records: list[dict[str, Any]]) -> None:
    for _ in track(range(1), "epochs"):
        list(track(range(1), "batches"))
    reporter.current().flush()
    started = {record["name"]: record["started"] for record in records}
    assert started["epochs"] <= started["batches"] <= records[-1]["time"]


def test_a_break_sends_the_last_record_too(records: list[dict[str, Any]]) -> None:
    for item in track(range(100)):
        if item == 5:
            break
    reporter.current().flush()
    assert (records[-1]["done"], records[-1]["ended"]) == (5, True)
