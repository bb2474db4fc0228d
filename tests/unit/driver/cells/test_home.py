"""Tests for where a driver learns the use of the home, and for runs that are refused or warned."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from farandole.driver.cells.home import admit_run, home_use
from farandole.exceptions import UsageError, WorkerStartError
from farandole.quotas.home import LIMIT, HomeUse

USE = HomeUse(used=95, limit=100 * 2**20, free=5 * 2**20, largest=(("data", 90),))


def core(answer, *, outside=True):
    """Return a core whose first worker answers with this, or raises it."""

    async def home():
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(
        source=SimpleNamespace(outside=outside), handles=[SimpleNamespace(worker=SimpleNamespace(home=home))]
    )


async def test_a_driver_outside_of_the_hub_asks_a_worker():
    assert await home_use(core({**asdict(USE), "largest": [["data", 90]]})) == USE
    assert await home_use(core({})) is None


async def test_a_worker_of_an_earlier_version_limits_no_runs():
    gone = WorkerStartError("worker 'c-w0' answered GET farandole/home with 404", status=404)
    assert await home_use(core(gone)) is None
    assert await admit_run(core(gone)) == ""


async def test_a_driver_on_the_hub_looks_at_its_own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await home_use(core({}, outside=False)) is None
    monkeypatch.setenv(LIMIT, str(2**30))
    found = await home_use(core({}, outside=False))
    assert (found.limit, found.used < 2**20) == (2**30, True)


async def test_a_full_home_refuses_a_run_and_a_nearly_full_one_warns():
    assert (await admit_run(core(asdict(USE)))).startswith("Your home is nearly full (")
    with pytest.raises(UsageError, match="What takes most: ~/data 90 B"):
        await admit_run(core({**asdict(USE), "free": 0}))
