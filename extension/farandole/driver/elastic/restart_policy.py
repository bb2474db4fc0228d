"""When an elastic run has failed so often that it is given up."""

from __future__ import annotations

import time
from collections.abc import Sequence

from farandole.exceptions import RankError

MOST_FAILURES = 3
"""How many failures in a row, without a commit in between, end a run."""


class Failures:
    """Counts failures of a run, and beside them attempts to form its world that failed: those say nothing of the run.

    A world that cannot be formed for ``patience`` seconds ends the run as well.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failures = 0
        self._commits = 0
        self._attempts = 0
        self._since = 0.0

    @property
    def forming(self) -> bool:
        """Whether the last attempt to form a world failed."""
        return self._attempts > 0

    def note_attempt(self, *, formed: bool) -> None:
        """Note whether a world could be formed."""
        if not formed and not self.forming:
            self._since = time.monotonic()
        self._attempts = 0 if formed else self._attempts + 1

    def note_failure(self, commits: int, why: Sequence[str]) -> None:
        """Note that the next world has to begin, after a failure, from so many commits.

        Whether there were more since the world before is known only now: where all ranks were lost, new ones say what
        copy they have found, which may be older than the last commit.

        Raises: RankError where that is enough.
        """
        if self.forming:
            enough = self._attempts >= MOST_FAILURES and time.monotonic() - self._since > self._patience
            what = f"the ranks could form no world in {self._attempts} attempts and the run"
        else:
            self._failures = self._failures + 1 if commits <= self._commits else 1
            self._commits = commits
            enough = self._failures >= MOST_FAILURES
            what = f"the run failed {self._failures} times in a row without a commit in between and"
        if enough:
            raise RankError(f"{what} was given up. The last time {'; '.join(why)}.")
