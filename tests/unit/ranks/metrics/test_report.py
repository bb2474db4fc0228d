import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from farandole.exceptions import ReportError
from farandole.ranks.metrics import reporter
from farandole.ranks.metrics.report import report, to_number
from farandole.ranks.metrics.reporter import Reporter
from farandole.ranks.metrics.result import result, to_plain


class Line:
    """A publisher that records all messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.buffers: list[list[bytes] | None] = []

    def __call__(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.messages.append(data)
        self.buffers.append(buffers)

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [r for message in self.messages for r in message["records"] if r["kind"] == kind]


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    reporter.current().connect(line)
    yield line
    reporter.current().close()
    reporter.current.cache_clear()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (np.array([2]), 2.0),
        (torch.tensor(3), 3.0),
        (torch.tensor([[4.0]], requires_grad=True), 4.0),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        (-math.inf, -math.inf),
    ],
)
def test_numbers_are_taken(value: Any, expected: float) -> None:
    assert to_number("loss", value) == expected


def test_nan_is_kept() -> None:
    assert math.isnan(to_number("loss", torch.tensor(math.nan)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.tensor([1.0, 2.0]), r"'loss' is a torch.Tensor of 2 elements.*loss=loss.mean\(\)"),
        (np.zeros((2, 3)), r"'loss' is a numpy.ndarray of 6 elements"),
        (np.zeros(0), "of 0 elements"),
        ("good", "'loss' is a str; report numbers only"),
        (np.str_("good"), "'loss'.*str.*report numbers only"),
        ({"a": 1}, r"'loss' is a dict; .*fd.report\(\*\*values\)"),
        ([1, 2], "'loss' is a list"),
        (1j, "'loss' is a complex"),
        (None, "'loss' is None; report a number"),
        (10**400, "too large"),
    ],
)
def test_anything_else_is_an_error_that_names_the_key(value: Any, says: str) -> None:
    with pytest.raises(ReportError, match=says):
        report(loss=value)


@pytest.mark.parametrize("step", [1.5, "1", True, torch.tensor(1.0)])
def test_a_step_is_a_whole_number(step: Any) -> None:
    with pytest.raises(ReportError, match="step must be a whole number"):
        report(step=step)


def test_reports_alone_are_dropped() -> None:
    report(step=1, loss=1.0)
    result({"a": 1})
    assert not reporter.current()._queue


def test_a_report_becomes_a_message(line: Line) -> None:
    reporter.current().begin("r1")
    report(step=np.int64(3), epoch=torch.tensor(1), loss=math.nan, accuracy=torch.tensor(0.5))
    reporter.current().flush()
    (record,) = line.records("report")
    assert record.pop("time") == pytest.approx(time.time(), abs=60)
    assert record == {
        "kind": "report",
        "rank": 0,
        "step": 3,
        "epoch": 1,
        "values": {"loss": "NaN", "accuracy": 0.5},
    }
    assert {message["run"] for message in line.messages} == {"r1"}


def test_a_tensor_is_read_at_the_call(line: Line) -> None:
    loss = torch.tensor(1.0)
    report(loss=loss)
    loss += 1
    reporter.current().flush()
    assert line.records("report")[0]["values"] == {"loss": 1.0}


def test_ten_thousand_reports_arrive_in_order(line: Line) -> None:
    for step in range(10_000):
        report(step=step, loss=0.0)
    reporter.current().flush()
    assert [record["step"] for record in line.records("report")] == list(range(10_000))
    assert max(len(message["records"]) for message in line.messages) <= reporter.BATCH_RECORDS


def test_the_thread_sends_without_a_flush() -> None:
    sent = threading.Event()
    line = Reporter()
    line.connect(lambda data, buffers=None: sent.set())
    line.put({"kind": "report"})
    assert sent.wait(10)
    line.close()


@pytest.mark.parametrize(("size", "seconds"), [(1, 0.1), (200, 0.1), (400, 0.2), (1000, 0.5)])
def test_hundreds_of_ranks_send_less_often(size: int, seconds: float) -> None:
    assert reporter.send_seconds(size) == seconds


def test_reports_of_hundreds_of_ranks_wait_longer_and_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_SIZE", "600")
    came = []
    line = Reporter()
    began = time.monotonic()
    line.connect(lambda data, _buffers=None: came.append((time.monotonic(), len(data["records"]))))
    while not came:
        line.put({"kind": "report"})
        time.sleep(0.01)
    line.close()
    assert came[0][0] - began >= 0.3
    assert came[0][1] > 1


def test_usage_is_sampled_while_a_run_is_active() -> None:
    seen: list[dict[str, Any]] = []
    sampled = threading.Event()

    def publish(data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        seen.extend(data["records"])
        sampled.set()

    line = Reporter()
    line.connect(publish)
    assert not sampled.wait(0.3)  # resource usage is not sampled without a run
    line.begin("r1")
    assert sampled.wait(10)
    line.close()
    assert seen[0]["kind"] == "usage"
    assert seen[0]["memory_bytes"] > 1e6


def test_send_keeps_the_order(line: Line) -> None:
    report(step=1)
    reporter.send({"kind": "value"}, buffers=[b"x"])
    kinds = [record["kind"] for message in line.messages for record in message["records"]]
    assert kinds == ["report", "value"]
    assert line.buffers[-1] == [b"x"]


def test_a_result_is_plain_json(line: Line) -> None:
    result({"a": np.arange(2), "b": (torch.tensor(1.5), None, math.inf), 3: True})
    assert line.records("result")[0]["value"] == {"a": [0, 1], "b": [1.5, None, "Infinity"], "3": True}


@pytest.mark.parametrize("value", [5, 0.5, True, None, "text", [], {}, [1, [2]]])
def test_a_result_may_be_a_number_a_text_or_a_list(line: Line, value: Any) -> None:
    result(value)
    assert [record["value"] for record in line.records("result")] == [value]


def test_an_error_names_the_place_of_a_value_that_is_not_json() -> None:
    with pytest.raises(ReportError, match=r"value\['a'\]\[1\] is a object"):
        to_plain({"a": [1, object()]}, "value")


@pytest.mark.parametrize("value", ["x" * 1_100_000, np.zeros(10**7), torch.zeros(10**7)])
def test_a_large_result_points_to_pull(value: Any) -> None:
    with pytest.raises(ReportError, match=r"1 MiB.*%pull"):
        result(value)


def test_the_rank_side_imports_neither_torch_nor_the_driver() -> None:
    code = (
        "import sys, farandole.ranks.metrics.report, farandole.ranks.metrics.track, farandole.ranks.metrics.result,"
        "farandole.ranks.training.prepare, farandole.ranks.kernel.transfer;"
        "print([m for m in sys.modules if m in ('torch', 'numpy', 'horovod', 'psutil')"
        "or m.startswith(('farandole.driver', 'farandole.notebook'))])"
    )
    folder = Path(__file__).parents[4] / "extension"
    out = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["time", "rank"])
def test_names_of_built_in_columns_are_refused(name):
    with pytest.raises(ReportError, match=f"'{name}' is a column of every report"):
        report(**{name: 1.0})


@pytest.mark.parametrize("value", [10**400, -(10**400)])
@pytest.mark.parametrize("key", ["step", "epoch"])
def test_a_step_that_is_too_large_or_small_for_its_column_is_refused(key, value):
    with pytest.raises(ReportError, match=f"{key} is not between -9223372036854775807 and 9223372036854775807; count"):
        report(**{key: value}, loss=1.0)


def test_metrics_without_names_are_refused_with_the_remedy() -> None:
    with pytest.raises(ReportError, match=r"by name, and the step is a dict; write fd.report\(\*\*values\)"):
        report({"loss": 1.0})  # type: ignore[arg-type]
    with pytest.raises(ReportError, match=r"not 0.5 \(float\). Give metrics names, e.g. fd.report\(step=step"):
        report(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [200, 100_000])
def test_a_result_that_is_nested_too_deeply_is_refused_on_the_rank(levels: int) -> None:
    """The driver could not serialize such a result, and the thread that writes the run's files would crash."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    with pytest.raises(ReportError, match="nested more than 90 levels deep"):
        result(value)
