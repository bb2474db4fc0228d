"""Decides when an elastic run has failed too often to continue."""

from __future__ import annotations

import time
from collections.abc import Sequence

from farandole.exceptions import RankError

MOST_FAILURES = 3


class RestartPolicy:
    """Counts the failures of a run and ends it after too many.

    - A run ends after 3 failures in a row without a commit in between.
    - Failed attempts to form a world are counted separately, because the training code plays no part in them. The run
      ends after at least 3 failed attempts in a row that span more than ``seconds``.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures = 0
        self._commits = 0
        self._attempts = 0
        self._since = 0.0

    @property
    def forming_failed(self) -> bool:
        """Whether the last attempt to form a world failed."""
        return self._attempts > 0

    def note_attempt(self, *, formed: bool) -> None:
        """Record the outcome of an attempt to form a world."""
        if not formed and not self.forming_failed:
            self._since = time.monotonic()
        self._attempts = 0 if formed else self._attempts + 1

    def note_failure(self, commits: int, causes: Sequence[str]) -> None:
        """Count a failure, except a failed attempt to form a world, which `note_attempt` has already counted.

        ``commits`` is the number of commits from which the next world continues. It is known only when that world is
        about to form: if all ranks were lost, it comes from the in-memory checkpoint that the new ranks found, which
        may be older than the last commit.

        Raises:
            RankError: the run has failed too often.
        """
        if self.forming_failed:
            too_often = self._attempts >= MOST_FAILURES and time.monotonic() - self._since > self._seconds
            problem = f"the ranks could not form a world in {self._attempts} attempts, so the run"
        else:
            self._failures = self._failures + 1 if commits <= self._commits else 1
            self._commits = commits
            too_often = self._failures >= MOST_FAILURES
            problem = f"the run failed {self._failures} times in a row without a commit in between, so it"
        if too_often:
            raise RankError(f"{problem} was stopped. The last cause: {'; '.join(causes)}.")
