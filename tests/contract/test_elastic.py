"""Elastic runs on both backends. Ranks die at given steps, but each sample is trained on exactly once per epoch."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from farandole import Cluster, Elastic
from farandole.exceptions import RankDiedError, RankError, UsageError
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import CHECKPOINTS, VANISH, elastic, learn

SAMPLES = 248
EPOCHS = 2
STEPS = SAMPLES // 8


BOTH = pytest.mark.parametrize("cluster", ["horovod", "torch"], indirect=True)
"""Runs a test on both backends, and not only before a release."""


@pytest.fixture(scope="module", params=["torch", pytest.param("horovod", marks=pytest.mark.release)])
def cluster(request, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=3, backend=request.param, store=store) as cluster:
        yield cluster


def whole(run, *, epochs=EPOCHS):
    """Check that the run has trained on each sample once per epoch, and that all ranks end with equal parameters."""
    assert run.status == Status.FINISHED
    for result in run.results.values():
        assert result["step"] == STEPS * epochs
        assert Counter(result["seen"]) == dict.fromkeys(range(SAMPLES), epochs)
    assert len({round(result["weights"], 5) for result in run.results.values()}) == 1


def steps_lost(run):
    """Return the largest number of steps that rank 0 had to repeat after a fault, according to its reports."""
    steps = run.dataframe().query("rank == 0")["step"].to_list()
    return max((before - now + 1 for before, now in pairwise(steps)), default=0)


def has_notice(run, *texts):
    """Return whether one of the run's notices contains all these texts. It may contain other text in between."""
    return any(all(text in notice for text in texts) for notice in run.notices)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_killed_at_a_step_loses_only_that_step(cluster, tmp_path, rank):
    run = cluster.train(elastic(tmp_path, fault=f"kill({rank}, 20)"), elastic=Elastic())
    whole(run)
    assert steps_lost(run) <= 1
    assert has_notice(run, f"rank {rank} (worker main-w0) was lost: ")


@BOTH
def test_after_the_loss_of_all_ranks_new_ones_continue_from_the_copy_of_a_commit(cluster, tmp_path):
    fault = "kill(fd.rank(), 20) if fd.size() == 3 else None; time.sleep(0.02)"
    run = cluster.train(elastic(tmp_path, fault=fault), elastic=Elastic())
    whole(run)
    assert not has_notice(run, "from the beginning")
    assert not list(Path("/dev/shm").glob(f"farandole-{run.id}-*"))


def test_without_a_copy_either_new_ranks_continue_from_the_newest_checkpoint(cluster, tmp_path):
    run = cluster.train(elastic(tmp_path, before=VANISH, fault="vanish(25)"), elastic=Elastic())
    whole(run)
    assert has_notice(run, "resumed from the checkpoint of step 20: no other rank")
    assert not has_notice(run, "from the beginning")
    # At most the five steps from the checkpoint at step 20 to the fault at step 25 are lost.
    assert steps_lost(run) <= 5


@pytest.mark.release
def test_a_resumed_run_replaces_a_lost_rank_as_well(cluster, tmp_path):
    first = cluster.train(elastic(tmp_path, epochs=1, before=CHECKPOINTS))
    assert first.checkpoints
    fault = "kill(2, 50); time.sleep(0 if fd.size() == 3 else 0.1)"
    cell = elastic(tmp_path, epochs=12, before=CHECKPOINTS, fault=fault)
    run = cluster.train(cell, resume=first.id, elastic=Elastic())
    whole(run, epochs=12)
    assert len([notice for notice in run.notices if "resumed from step" in notice]) == 1
    assert has_notice(run, "rank 2 joined: continuing with 3 ranks from step")
    assert {result["size"] for result in run.results.values()} == {3}


def test_lost_ranks_do_not_reduce_the_accuracy(cluster, tmp_path):
    undisturbed = cluster.train(learn(tmp_path), elastic=Elastic()).result
    run = cluster.train(learn(tmp_path, fault="kill(0, 30); kill(1, 70)"), elastic=Elastic())
    assert len([notice for notice in run.notices if "was lost" in notice]) >= 2
    assert undisturbed > 0.9
    assert list(run.results.values()) == pytest.approx([undisturbed] * len(run.results), abs=0.005)


def test_steps_since_the_last_commit_are_repeated(cluster, tmp_path):
    run = cluster.train(elastic(tmp_path, every=8, fault="kill(1, 21)"), elastic=Elastic())
    whole(run)
    assert steps_lost(run) <= 8
    assert has_notice(run, "was lost", "from step 16")


@BOTH
def test_a_lost_rank_is_replaced_while_the_run_continues(cluster, tmp_path):
    fault = "kill(2, 20); time.sleep(0 if fd.size() == 3 else 0.1)"
    run = cluster.train(elastic(tmp_path, epochs=12, fault=fault), elastic=Elastic())
    whole(run, epochs=12)
    assert has_notice(run, "rank 2 joined: continuing with 3 ranks from step")
    assert {result["size"] for result in run.results.values()} == {3}


def test_learning_rates_follow_the_number_of_ranks_on_request(cluster, tmp_path):
    run = cluster.train(elastic(tmp_path, fault="kill(1, 20)"), elastic=Elastic(lr_rule="linear", max_ranks=3))
    result = run.result
    assert result["lr"] == pytest.approx(0.1 * result["size"] / 3)
    assert has_notice(run, "--lr-rule linear")


def test_below_the_minimum_the_run_waits_for_a_new_rank(cluster, tmp_path):
    run = cluster.train(elastic(tmp_path, fault="kill(1, 20)"), elastic=Elastic(min_ranks=3))
    whole(run)
    assert has_notice(run, "joined: continuing with 3 ranks")


def test_a_cell_that_always_kills_at_the_same_step_is_given_up(cluster, tmp_path):
    fault = "os.kill(os.getpid(), signal.SIGKILL) if fd.rank() == fd.size() - 1 and state.step == 20 else None"
    with pytest.raises((RankError, RankDiedError), match="in a row without a commit|is left, fewer|are left, fewer"):
        cluster.train(elastic(tmp_path, fault=fault), elastic=Elastic())
    assert cluster.store.list()[0].status == Status.FAILED


def test_an_error_of_the_cells_code_ends_the_run(cluster, tmp_path):
    fault = "1 / (0 if fd.rank() == 1 and state.step == 20 else 1)"
    with pytest.raises(RankError, match=r"failed on rank 1 .*ZeroDivisionError"):
        cluster.train(elastic(tmp_path, fault=fault), elastic=Elastic())


def test_a_cell_without_an_elastic_loop_is_refused(cluster):
    with pytest.raises(UsageError, match="put `@fd.elastic` above"):
        cluster.train("pass", elastic=Elastic())


def test_without_the_option_the_same_cell_only_trains(cluster, tmp_path):
    run = cluster.train(elastic(tmp_path))
    whole(run)
    assert not has_notice(run, "continuing with")
