"""The options for elastic training."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.driver.kernels.liveness import HUNG_SECONDS
from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean

LR_RULES = ("none", "linear")


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """The options of an elastic run, which continues from its last commit when ranks are lost and lets new ranks join.

    Args:
        min_ranks: the minimum number of ranks. With fewer ranks, the run waits for new ones, and fails if too few join
            in time.
        max_ranks: the maximum number of ranks, or None for no limit.
        lr_rule: ``linear`` multiplies learning rates by the new number of ranks divided by the old number. ``none``
            does not change learning rates.
        hung: how many seconds a rank may take to answer before it is treated as lost.

    Raises:
        UsageError: a value is invalid.
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
            raise UsageError(
                f"--hung {self.hung:g} is not a valid time; give the number of seconds that a rank may be silent"
            )
        if self.lr_rule not in LR_RULES:
            raise UsageError(
                f"there is no learning-rate rule {self.lr_rule!r}; choose one of {', '.join(LR_RULES)}."
                f"{did_you_mean(self.lr_rule, LR_RULES)}"
            )

    def check(self, *, code: str, size: int, backend: str) -> None:
        """Check that a cell and a cluster are suitable for these options.

        Raises:
            UsageError: the cell or the cluster is not suitable.
        """
        if not re.search(r"\belastic\b", code):
            raise UsageError(
                "an elastic run needs a loop that can continue: put `@fd.elastic` above `def train(state): ...` and "
                "call it with `fd.state(model, optimizer, loader)`, or leave `--elastic` out"
            )
        if backend == "none":
            raise UsageError(
                "backend none does not form a world, but `--elastic` needs one; use `--backend horovod` or `torch`"
            )
        too_few = size < self.min_ranks
        if too_few or size > self.room(size):
            limit = f"fewer than --min-ranks {self.min_ranks}" if too_few else f"more than --max-ranks {self.max_ranks}"
            raise UsageError(
                f"the cluster has {size} rank{'' if size == 1 else 's'}, {limit}; use `%cluster scale N`, or change "
                "the limit"
            )

    def room(self, wanted: int) -> int:
        """Return the number of ranks that the run may have if ``wanted`` ranks are available."""
        return wanted if self.max_ranks is None else min(wanted, self.max_ranks)
