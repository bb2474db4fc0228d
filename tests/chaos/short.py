"""A short soak test for the test suite. It injects some kinds of faults into one run, once each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.schedule import schedule
from tests.chaos.soak import soak
from tests.chaos.summary import summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.site import Site

SEED = 4
WORKERS = 2


def assert_survives(site: Site, kinds: Sequence[str], kept: Path) -> None:
    """Inject each kind of fault into a run on two workers, and check that it succeeds and leaves nothing behind."""
    faults = schedule(SEED, len(kinds), kinds, site.backends, WORKERS)
    report = soak(site, faults, workers=WORKERS, kept=kept, say=print)
    print(summary(report))
    assert report.problems == []
    assert report.given_up == []
    assert [hit.fault for hit in report.hits] == faults
