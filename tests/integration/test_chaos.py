"""A short soak test that injects several kinds of faults into one elastic run, and then checks for damage."""

import pytest

from tests.chaos.local import local_site
from tests.chaos.short import assert_survives

KINDS = ("rank-0", "worker", "driver", "disk", "memory", "proxy")


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_run_survives_faults_of_different_kinds(tmp_path):
    with local_site(tmp_path / "site") as site:
        # Some faults require root, for example to mount a small file system or to limit memory.
        assert_survives(site, [kind for kind in KINDS if kind in site.kinds], tmp_path / "kept")
