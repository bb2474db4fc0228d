"""Tests that an elastic run continues after its driver or the proxy was killed, and that no sample is skipped."""

import pytest
from farandole import Cluster, Elastic
from farandole.runs.store import RunStore

from hub.process import wait_until
from tests.cells import CONFIGURED, elastic, used_by_ranks
from tests.hub import run_hub
from tests.lost import EPOCHS, FAULT, LostElastic, assert_none_left_out

PATIENCE = 120


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("backend", "alone"), [("horovod", True), pytest.param("torch", False, marks=pytest.mark.release)]
)
def test_another_driver_takes_over_a_run(hub, tmp_path, backend, alone):
    lost = LostElastic(hub, tmp_path, f"t-{backend}", backend)
    if alone:
        lost.kill_rank()
        lost.wait_for_the_end_of(hub, 1)
    with lost.attach() as cluster:
        [background] = cluster.background.values()
        run = background.run
        if not alone:
            # The driver reads the rank's journal through the proxy, which keeps the driver's connection open after the
            # worker is killed.
            hub.kill_server("lost", f"t-{backend}-w1")
        wait_until(lambda: any("joined: continuing with 2 ranks" in notice for notice in run.notices), PATIENCE)
        lost.hurry()
        run.wait(PATIENCE)
        assert_none_left_out(lost.store, run)
        for expected in (
            "another driver leads the run now",
            f"rank 1 (worker t-{backend}-w1) was lost: ",
        ):
            assert any(expected in notice for notice in run.notices), run.notices


@pytest.mark.release
@pytest.mark.timeout(400)
def test_the_hyperparameters_survive_a_takeover(hub, tmp_path):
    lost = LostElastic(hub, tmp_path, "t-config", "torch", before=CONFIGURED, config={"lr": 0.01})
    assert used_by_ranks(tmp_path) == {"0.01-8": 2}
    lost.kill_rank()
    lost.wait_for_the_end_of(hub, 1)
    with lost.attach() as cluster:
        [background] = cluster.background.values()
        run = background.run
        wait_until(lambda: any("joined: continuing with 2 ranks" in notice for notice in run.notices), PATIENCE)
        lost.hurry()
        run.wait(PATIENCE)
        assert_none_left_out(lost.store, run)
        info = lost.store.find(run.id)
        assert (run.config, info.config) == ({"lr": 0.01, "batch": 8}, {"lr": 0.01, "batch": 8})
        assert info.overrides == {"lr": 0.01}
        assert used_by_ranks(tmp_path) == {"0.01-8": 3}
        assert not any("has changed nothing" in notice for notice in run.notices)


@pytest.mark.release
@pytest.mark.timeout(300)
def test_a_restarted_proxy_loses_no_rank(tmp_path):
    with run_hub(tmp_path / "state") as hub:
        store = RunStore(tmp_path / "runs")
        where = {"hub_url": hub.url, "token": hub.token_for("kay"), "store": store}
        with Cluster.start(2, name="calm", backend="torch", **where) as cluster:
            code = elastic(tmp_path, epochs=EPOCHS, fault=FAULT)
            run = cluster.train(code, elastic=Elastic(), detach=True)
            wait_until(lambda: len(run.dataframe()) >= 40, PATIENCE)
            kernels = [kernel.kernel_id for kernel in cluster._core.group.kernels]
            hub.kill_proxy()
            received = len(run.dataframe())
            wait_until(lambda: len(run.dataframe()) > received + 100, PATIENCE)
            (tmp_path / "hurry").touch()
            run.wait(PATIENCE)
            assert_none_left_out(store, run)
            assert not any("was lost" in notice or "continuing with" in notice for notice in run.notices)
            assert [kernel.kernel_id for kernel in cluster._core.group.kernels] == kernels
