"""A cluster is stopped at the end of its `with` block, whatever ends the block."""

import pytest
from farandole import Cluster
from farandole.exceptions import HubUnreachableError
from farandole.runs.store import RunStore

UNREACHABLE = "no hub answers"


@pytest.fixture
def said():
    """The messages about the cluster's progress."""
    return []


@pytest.fixture
def cluster(tmp_path, monkeypatch, said):
    """A cluster whose workers are stopped, but whose hub does not confirm it."""
    cluster = Cluster.start(local=True, ranks=1, backend="none", store=RunStore(tmp_path), progress=said.append)
    stop_workers = cluster._core.source.stop

    async def stop(names):
        await stop_workers(names)
        raise HubUnreachableError(UNREACHABLE)

    monkeypatch.setattr(cluster._core.source, "stop", stop)
    return cluster


def test_an_unreachable_hub_does_not_hide_the_error_of_the_block(cluster, said):
    with pytest.raises(ZeroDivisionError), cluster:
        raise ZeroDivisionError
    assert said[-1] == f"cluster 'main' may still be running: {UNREACHABLE}"


def test_without_an_error_in_the_block_the_failed_stop_is_raised(cluster):
    with pytest.raises(HubUnreachableError, match=UNREACHABLE), cluster:
        pass
