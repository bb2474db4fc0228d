"""The tables that ``%models`` and ``%serve list`` show."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from farandole.driver.endpoints.client import EndpointStatus, StreamStatus
from farandole.driver.table import aligned, html_table
from farandole.models.model import ModelInfo
from farandole.reading import printable
from farandole.sizes import size_text
from farandole.times import time_text

MODELS_HEAD = ("model", "saved", "metrics", "inputs", "outputs", "size", "run")
ENDPOINTS_HEAD = ("endpoint", "serves", "state", "requests/s", "errors", "p95", "URL")
STREAM_HEAD = ("from", "to", "lag", "records/s", "dead letters", "problem")
"""The further columns if an endpoint scores a stream."""


class Table:
    """A table that a notebook shows as text or HTML. Without rows, it shows ``empty``."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "") -> None:
        self.head = tuple(head)
        self.rows = [tuple(map(printable, row)) for row in rows]
        self._empty = empty

    def __repr__(self) -> str:
        return "\n".join(aligned([self.head, *self.rows])) if self.rows else self._empty

    def _repr_html_(self) -> str:
        return html_table(self.head, self.rows) if self.rows else f"<p>{escape(self._empty)}</p>"


def models_table(models: Sequence[ModelInfo]) -> Table:
    """Return a table with a row for each version."""
    return Table(
        MODELS_HEAD, [_model(info) for info in models], empty="no models yet; fd.save_model(model, NAME) saves one"
    )


def comparison(models: Sequence[ModelInfo]) -> Table:
    """Return a table with a column for each version, and a row for each metric and for what else may differ."""
    metrics = list(dict.fromkeys(name for info in models for name in info.metrics))
    facts = {
        "saved": [time_text(info.created) for info in models],
        **{name: [_number(info.metrics.get(name)) for info in models] for name in metrics},
        "inputs": [_tensors(info.inputs) for info in models],
        "outputs": [_tensors(info.outputs) for info in models],
        "size": [size_text(info.size) for info in models],
        "data": [info.data or "-" for info in models],
        "run": [info.run or "-" for info in models],
        "git": [info.git[:12] or "-" for info in models],
        **{package: [info.versions.get(package, "-") for info in models] for package in _packages(models)},
    }
    return Table(("", *map(str, models)), [(name, *cells) for name, cells in facts.items()])


def endpoints_table(endpoints: Sequence[EndpointStatus]) -> Table:
    """Return a table with a row for each endpoint, and with columns for streams if one of them scores a stream."""
    streams = any(one.stream for one in endpoints)
    head = (*ENDPOINTS_HEAD, *(STREAM_HEAD if streams else ()))
    rows = [(*_endpoint(one), *(_stream(one.stream) if streams else ())) for one in endpoints]
    return Table(head, rows, empty="no endpoint runs; `%serve MODEL` starts one")


def _model(info: ModelInfo) -> tuple[str, ...]:
    metrics = ", ".join(f"{name}={value:.4g}" for name, value in info.metrics.items()) or "-"
    tensors = _tensors(info.inputs), _tensors(info.outputs)
    return str(info), time_text(info.created), metrics, *tensors, size_text(info.size), info.run or "-"


def _endpoint(one: EndpointStatus) -> tuple[str, ...]:
    version = f":{one.version}" if one.version else ""
    serves = f"{one.model}{version}" if one.model else " ".join(one.command) or one.image
    latency = "-" if one.p95_ms is None else f"{one.p95_ms:.1f} ms"
    state = "ready" if one.ready else "starting or stopping"
    rate = "-" if one.requests_per_second is None else f"{one.requests_per_second:.1f}"
    return one.name, serves, state, rate, "-" if one.errors is None else str(one.errors), latency, one.url


def _stream(stream: StreamStatus | None) -> tuple[str, ...]:
    if stream is None:
        return ("-",) * len(STREAM_HEAD)
    lag = "-" if stream.lag is None else str(stream.lag)
    rate = f"{stream.records_per_second:.1f}"
    return stream.source, stream.target, lag, rate, str(stream.dead_letters), stream.problem or "-"


def _tensors(tensors: Sequence[object]) -> str:
    return ", ".join(map(str, tensors)) or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _packages(models: Sequence[ModelInfo]) -> list[str]:
    return list(dict.fromkeys(name for info in models for name in info.versions))
