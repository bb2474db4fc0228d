"""If work fails on one rank, all ranks raise an error, so that none waits for another."""

import pickle
from typing import Any

import pytest
from farandole.exceptions import UsageError
from farandole.ranks.world import collectives
from farandole.ranks.world.agreement import agreed


class DamagedError(Exception):
    """An error that all ranks shall raise."""


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes this process a rank of two, of which the other sends an answer."""

    def become(rank: int, answer: object) -> None:
        monkeypatch.setenv("FARANDOLE_RANK", str(rank))
        sent = pickle.dumps(answer)
        monkeypatch.setattr(collectives, "gather_bytes", lambda own: [own, sent] if rank == 0 else [sent, own])

    return become


def fail(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


def test_each_rank_has_its_own_result(as_rank: Any) -> None:
    assert agreed(lambda: 3) == 3
    as_rank(1, None)
    assert agreed(lambda: 3, DamagedError) == 3


def test_all_ranks_raise_the_error_of_one(as_rank: Any) -> None:
    as_rank(1, None)
    with pytest.raises(DamagedError, match=r"^torn \(on rank 1\)$"):
        agreed(fail(DamagedError("torn")), UsageError, DamagedError)
    as_rank(1, (1, "DamagedError: torn", "torn"))
    with pytest.raises(DamagedError, match=r"^torn \(on rank 0\)$"):
        agreed(lambda: 3, UsageError, DamagedError)


def test_the_error_of_the_lowest_rank_counts(as_rank: Any) -> None:
    as_rank(0, (0, "UsageError: wrong", "wrong"))
    with pytest.raises(DamagedError, match=r"^torn$"):
        agreed(fail(DamagedError("torn")), UsageError, DamagedError)
    as_rank(1, (0, "UsageError: wrong", "wrong"))
    with pytest.raises(UsageError, match=r"^wrong$"):
        agreed(fail(DamagedError("torn")), UsageError, DamagedError)


def test_another_error_has_its_traceback_on_its_rank(as_rank: Any) -> None:
    bug = KeyError("x")
    as_rank(1, None)
    with pytest.raises(KeyError) as caught:
        agreed(fail(bug), DamagedError)
    assert caught.value is bug
    as_rank(0, (None, "KeyError: 'x'", "'x'"))
    with pytest.raises(UsageError, match=r"rank 1 has failed, .* without it: KeyError: 'x'"):
        agreed(lambda: 3, DamagedError)
    as_rank(1, (None, "KeyError: 'x'", "'x'"))
    with pytest.raises(UsageError, match=r"rank 0 has failed"):
        agreed(fail(DamagedError("torn")), DamagedError)
