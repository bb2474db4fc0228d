"""Elastic runs that survive the loss of worker pods and an outage of the control plane."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.docker.test_stack import CELL_SECONDS
from tests.kubernetes.node.one_node import NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.site import Site

END = "/home/user/enough"
CODE = f"""%%distributed_train --elastic -o run
import time, torch, farandole as fd
from pathlib import Path
from farandole.ranks.world.collectives import gather_bytes
state = fd.state(torch.nn.Linear(4, 1), step=0)

@fd.elastic
def train(state):
    while not any(part[0] for part in gather_bytes(bytes([Path({END!r}).exists()]))):
        state.step += 1
        fd.report(step=state.step, size=fd.size())
        if state.step % 2 == 0:
            state.commit()
        time.sleep(0.1)

train(state)
fd.result(state.step)
"""
MORE = 20
RECOVERY_SECONDS = 300.0
AWAY_SECONDS = 75.0
COMPLETE = "print(run.status, sorted(set(run.dataframe().step)) == list(range(1, run.result + 1)))"


@contextmanager
def elastic_run(site: Site, user: str, profile: str = "cpu") -> Iterator[None]:
    """Train on two worker pods during the block, then check that the run has finished with all its reports."""
    with site.kernel(user) as kernel:
        site.execute(user, "rm", "-f", END)
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute(f"%cluster start --workers 2 --profile {profile}", deadline=CELL_SECONDS)
        kernel.begin(CODE)
        wait_for_size(site, user, 2)
        yield
        site.execute(user, "touch", END)
        wait_until(lambda: site.run_record(user)["status"] != "running", CELL_SECONDS)
        kernel.reconnect()
        assert kernel.execute(COMPLETE, deadline=60).split() == ["finished", "True"]
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
        site.wait_gone(user, "main-w0", "main-w1")


def wait_for_size(site: Site, user: str, size: int) -> None:
    """Wait until ``size`` ranks have trained some more steps together."""
    begun = len(site.reports(user))

    def trained() -> bool:
        sizes = [report["values"]["size"] for report in site.reports(user)[begun:]]
        return len(sizes) >= MORE and set(sizes[-MORE:]) == {size}

    wait_until(trained, RECOVERY_SECONDS)


def test_a_deleted_worker_pod_is_replaced_during_a_run(site: Site) -> None:
    with elastic_run(site, "ada"):
        before = site.pods("ada")["main-w1"]["metadata"]["uid"]
        site.kubectl("delete", "pod", site.pod_name("ada", "main-w1"))
        wait_for_size(site, "ada", 2)
        assert before not in {pod["metadata"]["uid"] for pod in site.pods("ada").values()}


@pytest.mark.release
def test_a_hub_sees_its_pods_again_after_an_outage_of_the_control_plane(site: Site) -> None:
    with elastic_run(site, "grace"):
        with site.node.without_control_plane():
            # Wait until KubeSpawner has stopped watching pods. The check of the hub's log below confirms this.
            time.sleep(AWAY_SECONDS)
        wait_until(lambda: "never recovered, giving up" in site.kubectl("logs", "deployment/hub"), RECOVERY_SECONDS)
        before = site.pods("grace")["main-w1"]["metadata"]["uid"]
        site.kubectl("delete", "pod", site.pod_name("grace", "main-w1"))

        def replaced() -> bool:
            pod = site.pods("grace").get("main-w1")
            return pod is not None and pod["metadata"]["uid"] != before

        wait_until(replaced, RECOVERY_SECONDS)
        wait_for_size(site, "grace", 2)


@pytest.fixture
def repaired(site: Site) -> Iterator[None]:
    yield
    site.node.kubectl("uncordon", NODE)


@pytest.mark.release
@pytest.mark.usefixtures("repaired")
def test_a_run_continues_while_its_node_is_drained_of_a_worker(site: Site) -> None:
    with elastic_run(site, "emmy"):
        which = "--pod-selector=farandole.user=emmy,hub.jupyter.org/servername=main-w1"
        site.node.kubectl("drain", NODE, "--force", "--delete-emptydir-data", which, "--timeout=120s")
        # The only node accepts no pods now, so the worker is not replaced yet.
        wait_for_size(site, "emmy", 1)
        site.node.kubectl("uncordon", NODE)
        wait_for_size(site, "emmy", 2)


@pytest.mark.usefixtures("gpus")
def test_a_run_with_higher_priority_preempts_a_worker(site: Site) -> None:
    with elastic_run(site, "ada", profile="low-gpu"):
        notebook = site.pods("ada")[""]["metadata"]["uid"]
        with site.kernel("emmy") as emmy:
            emmy.execute("%load_ext farandole", deadline=CELL_SECONDS)
            emmy.execute("%cluster start --workers 1 --profile first-gpu", deadline=CELL_SECONDS)
            wait_for_size(site, "ada", 1)
            assert site.pods("ada")[""]["metadata"]["uid"] == notebook
            emmy.execute("%cluster stop", deadline=CELL_SECONDS)
        wait_for_size(site, "ada", 2)
    site.wait_gone("emmy", "main-w0")
