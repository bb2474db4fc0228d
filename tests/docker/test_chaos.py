"""A short soak test on a hub in containers, in which each worker has its own IP address."""

import pytest

from tests.chaos.containers import site_on
from tests.chaos.short import assert_survives

KINDS = ("worker", "rank-0", "memory", "driver", "disk")


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_run_survives_faults_of_different_kinds(tmp_path):
    (folder := tmp_path / "site").mkdir()
    with site_on(folder) as site:
        assert_survives(site, KINDS, tmp_path / "kept")
