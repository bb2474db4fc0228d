"""How a cluster is, as plain data that shows itself as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from farandole.driver.core import ClusterCore
from farandole.driver.output import label

HEAD = ("worker", "ranks", "profile", "host", "state")


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """A cluster's name, backend and size, a row (worker, ranks, profile, host, state) for each worker, GPU lines."""

    name: str
    backend: str
    size: int
    rows: tuple[tuple[str, ...], ...]
    gpus: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self._title(), *_aligned([HEAD, *self.rows]), *self.gpus])

    def html(self) -> str:
        """Return the status as an HTML table."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        gpus = "".join(f"<p>{escape(line)}</p>" for line in self.gpus)
        return f"<p>{escape(self._title())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{gpus}"

    def _repr_html_(self) -> str:
        return self.html()

    def _title(self) -> str:
        ranks, workers = _counted(self.size, "rank"), _counted(len(self.rows), "worker")
        return f"cluster {self.name}: {ranks} on {workers}, backend {self.backend}"


def status_of(core: ClusterCore, gpus: Mapping[str, Mapping[str, Any]] | None = None) -> ClusterStatus:
    """Return a cluster's status, from what its driver knows and what the hub says of its GPUs."""
    busy = set(core.group.busy)
    rows = []
    for crew in core.crews:
        dead = [kernel.rank for kernel in crew.kernels if not kernel.alive]
        working = any(kernel in busy for kernel in crew.kernels)
        state = f"{label(dead)} dead" if dead else "busy" if working else "idle"
        ranks = label([kernel.rank for kernel in crew.kernels]).split(" ", 1)[1]
        rows.append((crew.worker.name, ranks, crew.info.profile or "-", crew.info.host, state))
    size = len(core.group.kernels)
    lines = tuple(gpu_line(name, counts) for name, counts in (gpus or {}).items())
    return ClusterStatus(name=core.name, backend=core.backend, size=size, rows=tuple(rows), gpus=lines)


def gpu_line(name: str, counts: Mapping[str, Any]) -> str:
    """Return one class of GPUs in words: total, free, who holds how many, how many servers wait."""
    held = "".join(f", {user} has {number}" for user, number in counts["held"].items())
    waiting = f", {_counted(counts['waiting'], 'server')} waiting" if counts["waiting"] else ""
    return f"GPUs {name}: {counts['free']} of {counts['total']} free{held}{waiting}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
