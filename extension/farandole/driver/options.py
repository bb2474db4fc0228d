"""What a user asks of an elastic run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.driver.kernels.liveness import HUNG_SECONDS
from farandole.exceptions import UsageError

LR_RULES = ("none", "linear")


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """A run that goes on when ranks are lost, from its last commit, and takes in those that come.

    With fewer than ``min_ranks`` it waits for new ones, then gives up; it never has more than ``max_ranks``. The
    ``lr_rule`` linear multiplies learning rates by the new size over the old one; none leaves them alone. A rank that
    gives no sign of life for ``hung`` seconds is taken for lost.

    Raises: UsageError for a value that cannot work.
    """

    min_ranks: int = 1
    max_ranks: int | None = None
    lr_rule: str = "none"
    hung: float = HUNG_SECONDS

    def __post_init__(self) -> None:
        if self.min_ranks < 1:
            raise UsageError(f"an elastic run needs at least 1 rank, not --min-ranks {self.min_ranks}")
        if self.max_ranks is not None and self.max_ranks < self.min_ranks:
            raise UsageError(f"--max-ranks {self.max_ranks} is less than --min-ranks {self.min_ranks}")
        if not self.hung > 0:
            raise UsageError(f"--hung {self.hung:g} is no time; give the seconds that a rank may not answer")
        if self.lr_rule not in LR_RULES:
            raise UsageError(f"there is no learning-rate rule {self.lr_rule!r}; choose one of {', '.join(LR_RULES)}")

    def check(self, *, code: str, size: int, backend: str) -> None:
        """Refuse a cell or a cluster that this cannot be done with, before it starts.

        Raises: UsageError.
        """
        if not re.search(r"\belastic\b", code):
            raise UsageError(
                "an elastic run needs a loop that can continue: put `@fd.elastic` above `def train(state): ...` and "
                "call it with `fd.state(model, optimizer, loader)`, or leave `--elastic` out"
            )
        if backend == "none":
            raise UsageError(
                "ranks of backend none share no world; use `--backend horovod` or `torch` with `--elastic`"
            )
        too_few = size < self.min_ranks
        if too_few or size > self.room(size):
            limit = f"fewer than --min-ranks {self.min_ranks}" if too_few else f"more than --max-ranks {self.max_ranks}"
            raise UsageError(
                f"the cluster has {size} rank{'' if size == 1 else 's'}, {limit}; use `%cluster scale N`, or change "
                "the limit"
            )

    def room(self, wanted: int) -> int:
        """Return how many of the wanted ranks there may be."""
        return wanted if self.max_ranks is None else min(wanted, self.max_ranks)
