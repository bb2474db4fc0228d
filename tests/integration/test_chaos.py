"""A short soak: faults of different kinds hit one elastic run, and nothing of it is damaged or left."""

import pytest

from tests.chaos.local import local_site
from tests.chaos.schedule import schedule
from tests.chaos.soak import soak
from tests.chaos.summary import summary

KINDS = ("rank-0", "worker", "driver", "disk", "proxy")
WORKERS = 2


@pytest.mark.timeout(900)
def test_a_run_outlives_faults_of_different_kinds(tmp_path):
    with local_site(tmp_path / "site") as site:
        # Only root can make a small file system that may be full.
        kinds = [kind for kind in KINDS if kind in site.kinds]
        faults = schedule(4, len(kinds), kinds, site.backends, WORKERS)
        report = soak(site, faults, workers=WORKERS, kept=tmp_path / "kept", say=print)
    print(summary(report))
    assert report.problems == []
    assert report.given_up == []
    assert [hit.fault for hit in report.hits] == faults
