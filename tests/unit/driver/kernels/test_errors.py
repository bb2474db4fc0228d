"""Tests that the errors of many ranks are combined into a single exception."""

from dataclasses import replace

import pytest
from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.replies import UNANSWERED, Reply
from farandole.exceptions import FarandoleError, RankDiedError, RankError


def failed(rank, ename="ValueError", evalue="boom", ended=1.0, *, late=False):
    traceback = (f"Traceback of rank {rank}", f"{ename}: {evalue}")
    return Reply(
        rank=rank,
        worker=f"c-w{rank // 2}",
        status="error",
        ended=ended,
        ename=ename,
        evalue=evalue,
        traceback=traceback,
        late=late,
    )


def died(rank, cause="killed by signal 9 (SIGKILL)"):
    return Reply(rank=rank, worker=f"c-w{rank // 2}", status="dead", ended=1.0, evalue=cause)


def fine(rank):
    return Reply(rank=rank, worker=f"c-w{rank // 2}", status="ok", ended=1.0)


def test_the_same_error_on_all_ranks_is_one_error():
    error = rank_error([failed(rank, "SyntaxError", "invalid syntax") for rank in range(8)])
    assert str(error) == "the cell failed on ranks 0-7: SyntaxError: invalid syntax"
    assert error.traceback.count("Traceback of rank") == 1
    assert error.ranks == tuple(range(8))


def test_an_error_without_a_traceback_is_shown_once():
    reply = replace(failed(0, "UsageError", "call it otherwise"), traceback=("UsageError: call it otherwise",))
    assert rank_error([reply])._render_traceback_() == [
        "RankError: the cell failed on rank 0 (worker c-w0): UsageError: call it otherwise"
    ]


def test_one_rank_that_failed_is_named_with_its_worker():
    error = rank_error([fine(0), fine(1), failed(2)])
    assert type(error) is RankError
    assert str(error) == "the cell failed on rank 2 (worker c-w1): ValueError: boom"
    assert error.ranks == (2,)


def test_a_rank_stopped_because_of_an_error_is_listed_after_it():
    error = rank_error([died(0, UNANSWERED), failed(1), fine(2)])
    assert type(error) is RankDiedError
    assert str(error).startswith("the cell failed on rank 1 (worker c-w0): ValueError: boom\nrank 0 (worker c-w0): ")
    assert UNANSWERED in str(error)
    assert error.ranks == (0, 1)
    assert str(rank_error([died(0, UNANSWERED), fine(1)])).startswith("the cell failed on rank 0 ")


def test_different_errors_are_ordered_by_time():
    error = rank_error([failed(0, "KeyError", "'late'", ended=2.0), failed(1, ended=1.0)])
    assert str(error).index("ValueError") < str(error).index("KeyError")
    assert error.traceback.index("rank 1") < error.traceback.index("rank 0")


@pytest.mark.parametrize(
    ("ename", "evalue"),
    [
        ("KeyboardInterrupt", ""),
        ("HorovodInternalError", "Horovod has been shut down."),
        ("DistBackendError", "NCCL error"),
        ("RuntimeError", "[gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
    ],
)
def test_released_ranks_are_distinguished_from_the_cause(ename, evalue):
    error = rank_error([failed(0, ename, evalue, ended=0.5), failed(1, ended=1.0), failed(2, ename, evalue)])
    assert str(error).splitlines() == [
        "the cell failed on rank 1 (worker c-w0): ValueError: boom",
        "ranks 0, 2 waited for it and were released.",
    ]
    assert error.traceback.startswith("Traceback of rank 1")
    assert error.ranks == (1,)


def test_consequences_are_shown_if_there_is_no_other_error():
    error = rank_error([failed(0, "HorovodInternalError", "lost"), failed(1, "HorovodInternalError", "lost")])
    assert str(error) == "the cell failed on ranks 0-1: HorovodInternalError: lost"


def test_a_death_is_listed_first_with_rank_worker_cause_and_remedy():
    error = rank_error([failed(0), died(3), failed(1, "HorovodInternalError", "lost")])
    assert isinstance(error, RankDiedError)
    first, second, third = str(error).splitlines()
    assert "rank 3 (worker c-w1): its process is gone, killed by signal 9 (SIGKILL)" in first
    assert "The next cell starts a new rank in its place" in first
    assert second.startswith("rank 0 (worker c-w0): ValueError")
    assert third == "rank 1 waited for it and was released."
    assert error.ranks == (0, 3)


def test_a_rank_whose_memory_was_too_small_has_the_mesh_that_fits():
    advice = {0: "The smallest mesh that fits is mesh={'shard': 4}.", 1: "", 2: "The smallest mesh that fits."}
    killed = died(0, "killed by the host because it was out of memory (SIGKILL)")
    error = str(rank_error([killed, failed(1)], advice=advice))
    assert "or a larger profile. The smallest mesh that fits is mesh={'shard': 4}.\n" in error
    assert error.endswith("ValueError: boom")
    for name, words in (
        ("OutOfMemoryError", "CUDA out of memory."),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
    ):
        error = str(rank_error([failed(2, name, words), fine(0)], advice=advice))
        assert error.endswith(f"{name}: {words} The smallest mesh that fits.")
    assert "mesh" not in str(rank_error([died(0, UNANSWERED), failed(2)], advice=advice))


def test_a_missing_name_on_a_replaced_rank_names_the_remedy():
    missing = "NameError", "name 'x' is not defined"
    error = rank_error([fine(0), failed(1, *missing, late=True)])
    assert str(error) == (
        "the cell failed on rank 1 (worker c-w0): NameError: name 'x' is not defined. Rank 1 was started after earlier "
        "cells; run the cell that defines the name again."
    )
    error = rank_error([failed(0, *missing, late=True), failed(1, *missing, late=True)])
    assert "Ranks 0-1 were started after earlier cells" in str(error)


def test_a_name_that_is_missing_on_a_rank_of_the_start_or_another_error_has_no_remedy():
    missing = "NameError", "name 'x' is not defined"
    assert str(rank_error([failed(0, *missing), failed(1, *missing, late=True)])).endswith("is not defined")
    assert str(rank_error([failed(0, late=True)])).endswith("ValueError: boom")


def test_a_notebook_shows_the_ranks_traceback_and_not_the_drivers():
    lines = rank_error([failed(0)])._render_traceback_()
    assert lines == [
        "Traceback of rank 0\nValueError: boom",
        "RankError: the cell failed on rank 0 (worker c-w0): ValueError: boom",
    ]
    assert FarandoleError("do this")._render_traceback_() == ["FarandoleError: do this"]
