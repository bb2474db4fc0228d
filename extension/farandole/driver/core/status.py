"""The status of a cluster, with formatters for text and HTML."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.core.pool import WorkerHandle, idle_reason
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.output import label
from farandole.driver.table import aligned, html_table
from farandole.driver.workers.worker import WorkerInfo
from farandole.quotas.home import HomeUse
from farandole.times import duration_text, time_text

HEAD = ("worker", "ranks", "profile", "host", "state")


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """The status of a cluster.

    - ``size`` is the number of ranks.
    - ``rows`` contains a row (worker, ranks, profile, host, state) for each worker.
    - ``gpus`` contains a line of text for each class of GPUs.
    - ``home`` says how much of the user's home is used and free. It is empty if the hub sets no limit.
    """

    name: str
    backend: str
    size: int
    rows: tuple[tuple[str, ...], ...]
    gpus: tuple[str, ...] = ()
    home: str = ""

    def __str__(self) -> str:
        return "\n".join([self._title(), *aligned([HEAD, *self.rows]), *self._lines()])

    def html(self) -> str:
        """Return the status as an HTML table."""
        lines = "".join(f"<p>{escape(line)}</p>" for line in self._lines())
        return f"<p>{escape(self._title())}</p>{html_table(HEAD, self.rows)}{lines}"

    def _repr_html_(self) -> str:
        return self.html()

    def _lines(self) -> list[str]:
        return [*self.gpus, *([self.home] if self.home else [])]

    def _title(self) -> str:
        ranks, workers = _counted(self.size, "rank"), _counted(len(self.rows), "worker")
        return f"cluster {self.name}: {ranks} on {workers}, backend {self.backend}"


def status_of(
    core: ClusterCore,
    gpus: Mapping[str, Mapping[str, Any]] | None = None,
    infos: Mapping[str, WorkerInfo] | None = None,
    home: HomeUse | None = None,
) -> ClusterStatus:
    """Return the status of a cluster.

    Given are the hub's counts for each GPU class, the workers' states by name, and the use of the user's home.
    """
    rows = []
    dask = core.service.status.workers if core.service is not None else {}
    for handle in core.handles:
        name = handle.worker.name
        has_tasks = name in dask and dask[name].busy
        state = _state(handle, core.group.busy, (infos or {}).get(name), time.time(), has_tasks=has_tasks)
        ranks = label([kernel.rank for kernel in handle.kernels]).split(" ", 1)[1]
        rows.append((name, ranks, handle.info.profile or "-", handle.info.host, state))
    size = len(core.group.kernels)
    lines = tuple(gpu_line(name, counts) for name, counts in (gpus or {}).items())
    return ClusterStatus(
        name=core.name, backend=core.backend, size=size, rows=tuple(rows), gpus=lines, home=home_line(home)
    )


def _state(
    handle: WorkerHandle, busy: Sequence[RankKernel], look: WorkerInfo | None, now: float, *, has_tasks: bool
) -> str:
    dead = [kernel.rank for kernel in handle.kernels if not kernel.alive]
    if dead:
        reason = idle_reason(handle)
        return f"stopped: it {reason}" if reason else f"{label(dead)} dead"
    if has_tasks or any(kernel in busy for kernel in handle.kernels):
        return "busy"
    return idle_state(look, now) if look is not None else "idle"


def idle_state(look: WorkerInfo, now: float) -> str:
    """Describe whether a worker is busy or idle, and when an idle worker will be stopped."""
    if look.idle_seconds is None:
        return "busy"
    if not look.idle_minutes:
        return "idle"
    left = max(0.0, look.idle_minutes * 60 - look.idle_seconds)
    return f"idle for {duration_text(look.idle_seconds)}, stopped at {time_text(now + left, now=now)} unless used"


def gpu_line(name: str, counts: Mapping[str, Any]) -> str:
    """Describe one class of GPUs: how many are free, how many each user holds, and how many servers are waiting."""
    held = "".join(f", {user} has {number}" for user, number in counts["held"].items())
    waiting = f", {_counted(counts['waiting'], 'server')} waiting" if counts["waiting"] else ""
    return f"GPUs {name}: {counts['free']} of {counts['total']} free{held}{waiting}"


def home_line(use: HomeUse | None) -> str:
    """Describe the use of the home, or return an empty string if it is unknown."""
    return "" if use is None else (use.warning or f"home: {use.text}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
