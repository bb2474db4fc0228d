"""Tests for the status of an idle worker, which says when the worker will be stopped."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from farandole.driver.core.core import ClusterCore
from farandole.driver.core.pool import WorkerHandle
from farandole.driver.core.status import idle_state, status_of
from farandole.driver.data.status import DaskStatus, DaskWorker
from farandole.driver.workers.worker import WorkerInfo
from farandole.quotas.home import HomeUse

NOW = datetime(2026, 11, 21, 14, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("idle_seconds", "idle_minutes", "words"),
    [
        (None, 30.0, "busy"),
        (None, 0.0, "busy"),
        (500.0, 0.0, "idle"),
        (12.0, 30.0, "idle for 0:12, stopped at 14:34 UTC unless used"),
        (180.0, 30.0, "idle for 3:00, stopped at 14:32 UTC unless used"),
        (3000.0, 30.0, "idle for 50:00, stopped at 14:05 UTC unless used"),
        (60.0, 1440.0, "idle for 1:00, stopped at 2026-11-22 14:04 UTC unless used"),
    ],
)
def test_the_end_of_an_idle_worker_is_announced(set_zone, idle_seconds, idle_minutes, words):
    set_zone("UTC")
    look = WorkerInfo(
        worker="c-w0",
        ranks=1,
        profile="",
        host="h",
        address="",
        node="n",
        backends=("none",),
        idle_minutes=idle_minutes,
        idle_seconds=idle_seconds,
    )
    assert idle_state(look, NOW) == words


def test_the_status_shows_the_use_of_the_home():
    core = ClusterCore("c", None, backend="none", on_notice=lambda _: None)
    assert str(status_of(core)).splitlines()[2:] == []
    use = HomeUse(used=2**30, limit=4 * 2**30, free=3 * 2**30)
    status = status_of(core, {"rtx": {"total": 3, "free": 1, "held": {}, "waiting": 0}}, home=use)
    assert str(status).splitlines()[2:] == ["GPUs rtx: 1 of 3 free", "home: 1.0 GiB of 4.0 GiB used, 3.0 GiB free"]
    assert status.html().endswith("<p>home: 1.0 GiB of 4.0 GiB used, 3.0 GiB free</p>")
    full = status_of(core, home=replace(use, used=5 * 2**30, free=0))
    assert str(full).splitlines()[2].startswith("Your home is full (5.0 GiB of 4.0 GiB used, 0 B free)")


def dask_worker(running, waiting):
    return DaskWorker(running=running, waiting=waiting, done=5, memory=0, memory_limit=1, spilled=0, paused=None)


def test_a_worker_with_tasks_of_dask_is_busy():
    info = WorkerInfo(
        worker="c-w0", ranks=1, profile="", host="h", address="", node="n", backends=("none",), idle_seconds=12.0
    )  # fmt: skip
    core = ClusterCore("c", None, backend="none", on_notice=lambda _: None)
    workers = {"c-w0": dask_worker(1, 0), "c-w1": dask_worker(0, 1), "c-w2": dask_worker(0, 0)}
    names = (*workers, "c-w3")
    core._pool.all = [
        WorkerHandle(
            worker=SimpleNamespace(name=name),
            info=replace(info, worker=name),
            kernels=[SimpleNamespace(rank=rank, alive=True)],
        )
        for rank, name in enumerate(names)
    ]
    infos = {name: replace(info, worker=name) for name in names}
    assert [row[-1] for row in status_of(core, infos=infos).rows] == ["idle"] * 4
    core.service = SimpleNamespace(status=DaskStatus(tasks=7, done=5, failed=0, workers=workers))
    assert [row[-1] for row in status_of(core, infos=infos).rows] == ["busy", "busy", "idle", "idle"]
