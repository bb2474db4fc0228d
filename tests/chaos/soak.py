"""The soak test: start one run after another, inject faults into each run, and check the run when it has ended."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
from farandole.protocol import CHECKPOINT_PREFIX, CHECKPOINTS
from farandole.ranks.checkpoints import files

from hub.process import wait_until
from tests.chaos.cell import CHECKPOINT_EVERY, in_order, longest_gap, steps_lost
from tests.chaos.invariants import broken, read_info
from tests.chaos.limits import exceeded, too_many
from tests.chaos.schedule import Fault, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.chaos.cell import Step
    from tests.chaos.site import Site

PATIENCE_SECONDS = 180.0
"""Time limit in seconds for all ranks to train again after a fault, including the time to detect a hung rank. The limit
also applies to the start and the end of a run.
"""
CUT_SECONDS = 15.0
"""Duration of a network cut in seconds, which is long enough for the driver to detect the cut."""
FULL = "could not be written"
TAIL_BYTES = 4_000


class EndedError(Exception):
    """Raised if a run ends before the soak test ends it."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An injected fault and its cost.

    ``seconds`` is the longest time without a step, ``whole`` the time until all ranks trained again, and ``lost`` the
    number of repeated steps. The times are None if the fault ended the run.
    """

    fault: Fault
    seconds: float | None = None
    whole: float | None = None
    lost: int = 0


@dataclass(kw_only=True)
class Report:
    """The results of a soak test."""

    hits: list[Hit] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    """The runs that ended early, with the reasons."""
    problems: list[str] = field(default_factory=list)


def soak(
    site: Site,
    faults: Sequence[Fault],
    *,
    workers: int,
    kept: Path,
    say: Callable[[str], None],
    patience: float = PATIENCE_SECONDS,
) -> Report:
    """Inject the faults and return the results. The evidence from runs with problems is copied to ``kept``."""
    report, number = Report(), 0
    for group in runs(faults):
        left = list(group)
        while left:
            run = Disturbed(site, f"chaos-{number}", workers, report, say, patience)
            left = left[max(1, run.go(left)) :]
            if run.problems:
                report.problems += run.problems
                site.keep(kept / f"chaos-{number}")
            number += 1
    report.problems += too_many(len(report.given_up), number)
    return report


class Disturbed:
    """A run into which faults are injected, from its start until its cleanup."""

    def __init__(
        self, site: Site, name: str, workers: int, report: Report, say: Callable[[str], None], patience: float
    ) -> None:
        self.problems: list[str] = []
        self._site = site
        self._name = name
        self._workers = workers
        self._report = report
        self._say = say
        self._patience = patience

    def go(self, faults: Sequence[Fault]) -> int:
        """Inject the faults while the run lasts, and return how many were injected."""
        done = len(self._report.hits)
        self._site.begin(self._name, faults[0].backend, self._workers)
        try:
            self._disturb(faults)
        except EndedError as exc:
            self._report.given_up.append(f"{self._name}: {exc}")
            self._say(f"  {self._name} was given up: {exc}")
        except (TimeoutError, RuntimeError) as exc:
            self._problem(str(exc))
        finally:
            self._site.give_up()
        self._look()
        return len(self._report.hits) - done

    def _disturb(self, faults: Sequence[Fault]) -> None:
        self._until(self._whole_since(time.time()), "the training did not begin")
        for fault in faults:
            self._until(self._step_is(self._last_step() + fault.steps), "the training does not continue")
            self._say(f"{self._name}: {fault}")
            self._do(fault)
        self._until(self._written_after(self._last_step()), "no checkpoint came after the last fault")
        self._site.ask_to_end()
        self._until(lambda: self._site.outcome() is not None, "the run did not end", ended=True)

    def _do(self, fault: Fault) -> None:
        began, known = time.time(), len(self._notices())
        try:
            before = self._hit(fault)
            self._endure(fault)
            self._site.heal(fault)
            self._until(self._whole_since(time.time()), f"not all ranks train again after {fault}")
            if fault.kind == "disk":
                self._until(lambda: self._is_reported(known), "no notice reports that the disk is full")
                # Wait for a checkpoint. If the disk filled up again before a checkpoint succeeded, users would get no
                # second message.
                self._until(
                    self._written_after(self._last_step()), "no checkpoint is written although the disk has free space"
                )
        except (EndedError, TimeoutError, RuntimeError):
            self._report.hits.append(Hit(fault=fault))
            raise
        finally:
            self._site.heal(fault)
        hit = self._note(fault, began)
        for problem in exceeded(hit, before, self._ranks(), self._notices()[known:]):
            self._problem(problem)

    def _hit(self, fault: Fault) -> list[Step]:
        """Inject a fault, and return the last step of each rank before the fault.

        Try twice, because the target may die before the fault is injected.
        """
        for _ in range(2):
            try:
                ranks = self._ranks()
                self._site.hit(fault, ranks)
            except (KeyError, ProcessLookupError, psutil.NoSuchProcess):
                self._until(self._whole_since(time.time()), f"not all ranks train before {fault}")
            else:
                return ranks
        raise RuntimeError(f"the target of {fault} was already dead in both attempts")

    def _endure(self, fault: Fault) -> None:
        """Wait while a lasting fault affects the run."""
        if fault.kind == "disk":
            later = self._step_is(self._last_step() + 2 * CHECKPOINT_EVERY)

            def endured() -> bool:
                self._site.hold(fault)
                return later()

            self._until(endured, "a full disk stops the training")
        elif fault.kind == "cut":
            over = time.monotonic() + CUT_SECONDS
            self._until(lambda: time.monotonic() > over, "the network was never cut")

    def _note(self, fault: Fault, began: float) -> Hit:
        whole = time.time()
        # Include one second before the fault, because the gap begins at the last step before the fault.
        steps = [step for step in in_order(self._site.lives()) if step.at > began - 1.0]
        hit = Hit(fault=fault, seconds=longest_gap(steps), whole=whole - began, lost=steps_lost(steps))
        self._report.hits.append(hit)
        self._say(f"  {hit.seconds:.1f} s without a step, all train again after {whole - began:.1f} s, {hit.lost} lost")
        return hit

    def _look(self) -> None:
        folder = self._site.run_folder()
        # A run with a problem was stopped by force, so its files are incomplete and cannot be checked.
        if folder is not None and not self.problems:
            for problem in broken(folder, self._site.lives()):
                self._problem(problem)
        for left in self._site.left():
            self._problem(f"left behind: {left}")

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._name}: {text}")
        self._say(f"  PROBLEM {text}")

    def _until(self, happened: Callable[[], bool], what: str, *, ended: bool = False) -> None:
        def look() -> bool:
            outcome = self._site.outcome()
            if outcome is not None and not ended:
                raise EndedError(outcome)
            return happened()

        try:
            wait_until(look, self._patience)
        except TimeoutError as exc:
            raise TimeoutError(f"{what} (for {self._patience:g} s)") from exc

    def _whole_since(self, since: float) -> Callable[[], bool]:
        """Return a function that checks whether all ranks of a full-size world have reported after ``since``."""

        def whole() -> bool:
            folder = self._site.run_folder()
            last = [_last_report(folder, rank) for rank in range(self._workers)] if folder is not None else [None]
            return all(one and one["time"] > since and one["values"]["size"] == self._workers for one in last)

        return whole

    def _step_is(self, step: int) -> Callable[[], bool]:
        return lambda: self._last_step() >= step

    def _written_after(self, step: int) -> Callable[[], bool]:
        return lambda: any(number > step for number in self._checkpoints())

    def _checkpoints(self) -> list[int]:
        folder = self._site.run_folder()
        places = files.checkpoint_paths(folder / CHECKPOINTS) if folder is not None else []
        return [int(place.name.removeprefix(CHECKPOINT_PREFIX)) for place in places]

    def _is_reported(self, known: int) -> bool:
        return any(FULL in text for text in self._notices()[known:])

    def _notices(self) -> Sequence[str]:
        folder = self._site.run_folder()
        return read_info(folder).notices if folder is not None else ()

    def _ranks(self) -> list[Step]:
        """Return the last step of each rank."""
        last = {step.rank: step for step in in_order(self._site.lives())}
        return [last[rank] for rank in range(self._workers)]

    def _last_step(self) -> int:
        return in_order(self._site.lives())[-1].step


def _last_report(folder: Path, rank: int) -> dict[str, Any] | None:
    """Return the last complete report in a rank's file, or None if there is no report."""
    path = folder / f"metrics/rank-{rank}.jsonl"
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    found: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
    return found
