"""The result of ``%cluster check``, which shows figures and faults as text or HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from farandole.driver.preflight.figures import DriverFigures, Link, RankFigures
from farandole.driver.preflight.fit import HEAD as FIT_HEAD
from farandole.driver.preflight.fit import ModelFit
from farandole.driver.preflight.judge import driver_faults, driver_notes, machine_faults, size
from farandole.driver.preflight.modes import HEAD as MODE_HEAD
from farandole.driver.preflight.modes import Mode, ModelFigures, mode_row
from farandole.driver.preflight.network import link_faults, rate
from farandole.driver.table import aligned, html_table
from farandole.times import short_text

LINK_HEAD = ("ranks", "latency", "bandwidth")
MACHINE_HEAD = ("memory free", "least disk free", "clock", "load", "GPUs")
SHOWN_LINKS = 12


@dataclass(frozen=True, kw_only=True, repr=False)
class Preflight:
    """The result of checking a cluster before training.

    ``all_reduce`` is the rate, in bytes/s, at which the world sums 16 MiB of float32 values. It is None if the cluster
    has no world or only one rank, or if the sum failed for the reason in ``all_reduce_error``. ``fit`` is there if the
    check was asked for a model, and ``model`` and ``modes`` if it was asked for the speed of a model that fits.
    """

    name: str
    backend: str
    driver: DriverFigures
    ranks: tuple[RankFigures, ...]
    links: tuple[Link, ...] = ()
    all_reduce: float | None = None
    all_reduce_error: str = ""
    model: ModelFigures | None = None
    modes: tuple[Mode, ...] = ()
    fit: ModelFit | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """One message per fault. Each message includes a remedy."""
        names = [rank.name for rank in self.ranks]
        failed = (
            f"an all-reduce failed: {self.all_reduce_error.rstrip('.')}. If no link is at fault, try the other backend."
        )
        reduced = [failed] if self.all_reduce_error else []
        found = [*driver_faults(self.driver, self.ranks), *machine_faults(self.ranks)]
        return (*found, *link_faults(self.links, names), *reduced)

    def __str__(self) -> str:
        lines = [f"cluster {self.name}, backend {self.backend}", *aligned([self._head(), *self._rows()])]
        if self.links:
            lines += aligned([LINK_HEAD, *self._link_rows()])
        lines += self._notes()
        if self.fit:
            lines += [str(self.fit), *aligned([FIT_HEAD, *self.fit.rows()]), self.fit.advice]
        if self.modes:
            lines += [str(self.model), *aligned([MODE_HEAD, *map(mode_row, self.modes)])]
        return "\n".join([*lines, *self.faults, self._verdict()])

    __repr__ = __str__

    def html(self) -> str:
        """Return the figures as HTML tables, followed by the faults."""
        links = html_table(LINK_HEAD, self._link_rows()) if self.links else ""
        notes = "".join(f"<p>{escape(line)}</p>" for line in self._notes())
        faults = "".join(f"<li>{escape(fault)}</li>" for fault in self.faults)
        title = f"<p>{escape(f'cluster {self.name}, backend {self.backend}')}</p>"
        table = html_table(self._head(), self._rows())
        rows = html_table(MODE_HEAD, [mode_row(mode) for mode in self.modes])
        modes = f"<p>{escape(str(self.model))}</p>{rows}" if self.modes else ""
        return f"{title}{table}{links}{notes}{self._fit_html()}{modes}<ul>{faults}</ul><p><b>{self._verdict()}</b></p>"

    def _fit_html(self) -> str:
        if self.fit is None:
            return ""
        rows = html_table(FIT_HEAD, self.fit.rows())
        return f"<p>{escape(str(self.fit))}</p>{rows}<p>{escape(self.fit.advice)}</p>"

    def _repr_html_(self) -> str:
        return self.html()

    def _verdict(self) -> str:
        count = len(self.faults)
        return f"{count} fault{'' if count == 1 else 's'}" if count else "no fault found"

    def _packages(self) -> list[str]:
        return list(dict.fromkeys(name for rank in self.ranks for name in rank.versions))

    def _head(self) -> tuple[str, ...]:
        return ("rank", "worker", "host", "address", *self._packages(), *MACHINE_HEAD)

    def _rows(self) -> list[tuple[str, ...]]:
        return [self._driver_row(), *map(self._row, self.ranks)]

    def _driver_row(self) -> tuple[str, ...]:
        versions = [self.driver.versions.get(name, "-") for name in self._packages()]
        return ("driver", "-", self.driver.host, "-", *versions, *["-"] * len(MACHINE_HEAD))

    def _row(self, rank: RankFigures) -> tuple[str, ...]:
        return (
            str(rank.rank),
            rank.worker,
            rank.host,
            rank.address,
            *(rank.versions.get(name, "none") for name in self._packages()),
            size(rank.memory),
            size(min(rank.disks.values(), key=lambda room: room.share)) if rank.disks else "-",
            f"{rank.skew:+.3f} s ± {rank.skew_error:.3f}",
            f"{rank.load:.1f} on {rank.cpus} CPUs",
            ", ".join(gpu.name for gpu in rank.gpus) or "none",
        )

    def _link_rows(self) -> list[tuple[str, ...]]:
        worst = sorted(self.links, key=lambda link: (not link.error, -(link.latency or 0)))
        return [_link_row(link) for link in worst[:SHOWN_LINKS]]

    def _notes(self) -> list[str]:
        hidden = len(self.links) - SHOWN_LINKS
        notes = [f"... and {hidden} faster pairs"] if hidden > 0 else []
        if self.all_reduce is not None:
            notes.append(f"all-reduce of 16 MiB on {len(self.ranks)} ranks: {rate(self.all_reduce)}")
        return [*notes, *driver_notes(self.driver, self.ranks)]


def _link_row(link: Link) -> tuple[str, ...]:
    latency = "-" if link.latency is None else short_text(link.latency)
    bandwidth = "-" if link.bandwidth is None else rate(link.bandwidth)
    return (f"{link.first} - {link.second}", latency, bandwidth)
