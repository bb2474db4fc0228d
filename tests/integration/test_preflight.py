"""Tests for the preflight check on real ranks, one of which has a slow connection."""

import pytest
from farandole import Cluster
from farandole.exceptions import UsageError
from farandole.runs.store import RunStore

SLOW = """
import time
from farandole.ranks.preflight import links

def late(peer, answer=links._read):
    def read(*arguments):
        message = answer(*arguments)
        time.sleep(0.02)
        return message
    links._read = read
    try:
        echo(peer)
    finally:
        links._read = answer

echo, links.echo = links.echo, late
"""


@pytest.fixture
def start(tmp_path):
    def start(**options):
        return Cluster.start(local=True, store=RunStore(tmp_path), progress=lambda _: None, **options)

    return start


def test_the_rank_with_the_slow_connection_is_named(start):
    with start(ranks=3, backend="none") as cluster:
        assert not [fault for fault in cluster.check().faults if "latency" in fault]
        cluster.run(SLOW, ranks=[2])
        found = cluster.check()
        [fault] = [fault for fault in found.faults if "latency" in fault]
        assert fault.startswith("rank 2 (worker main-w0) has a latency of ")
        assert "to all others" in fault
        assert len(found.links) == 3
        assert found.all_reduce is None


def test_a_single_rank_is_checked_too(start):
    with start(ranks=1, backend="torch") as cluster:
        found = cluster.check()
        assert (len(found.ranks), found.links, found.all_reduce, found.all_reduce_error) == (1, (), None, "")
        driver, rank = str(found).splitlines()[2:4]
        assert (driver.split()[0], rank.split()[:2]) == ("driver", ["0", "main-w0"])


@pytest.mark.parametrize("backend", [pytest.param("horovod", marks=pytest.mark.release), "torch"])
def test_the_speed_of_a_model_is_predicted_in_each_mode(start, backend):
    define = "import torch\nnetwork = torch.nn.Linear(2000, 500)\nbatch = torch.ones(64, 2000), torch.ones(64)"
    with start(ranks=2, backend=backend) as cluster:
        cluster.run(define)
        found = cluster.check("network", "batch")
        assert found.fit.whole
        assert found.fit.advice == "network fits on each rank without a mesh."
        assert found.model.size == 4 * (2000 * 500 + 500)
        first, *others = found.modes
        assert (first.mode, first.bytes_per_step) == ('sync="step"', found.model.size)
        # The latency of a sum is added, and is not a part of the result.
        assert 0 < first.average - found.model.size / found.all_reduce < 0.1
        assert [mode.chosen for mode in found.modes].count(True) == 1
        assert all(mode.bytes_per_step < first.bytes_per_step for mode in others if "every=1," not in mode.mode)
        with pytest.raises(UsageError, match=r"the ranks have no variable .netwrok.*Did you mean .network.\?"):
            cluster.check(model="netwrok", batch="batch")
        # The cluster still works after the error.
        assert cluster.check().modes == ()
