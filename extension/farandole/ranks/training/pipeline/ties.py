"""Keeps parameters equal that stages on several ranks have, such as an embedding that is tied to the head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training.pipeline import links, parameters


@dataclass(frozen=True)
class Tie:
    """A parameter that several ranks have.

    Attributes:
        names: the names of the parameter, by the numbers of these ranks in ascending order.
        own: this rank's copy of the parameter, or None if it has none.
    """

    names: Mapping[int, str]
    own: nn.Parameter | None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks, in ascending order."""
        return tuple(self.names)


class Ties:
    """The parameters that several ranks have. Their gradients are the sums over these ranks.

    The ranks start with the same values, and their optimizers then make the same steps.
    """

    def __init__(self, ties: Iterable[Tie]) -> None:
        self._ties = list(ties)

    @classmethod
    def of(cls, module: nn.Module, shared: Iterable[Mapping[int, str]]) -> Ties:
        """Return the ties of a rank.

        Args:
            module: what this rank has of the model.
            shared: the name of each parameter that several stages have, by the numbers of these stages.
        """
        ties = []
        for names in shared:
            by_rank = dict(sorted((stage % context.size(), name) for stage, name in names.items()))
            name = by_rank.get(context.rank())
            if len(by_rank) > 1:
                ties.append(Tie(by_rank, None if name is None else module.get_parameter(name)))
        return cls(ties)

    def start_alike(self) -> None:
        """Give all ranks the values of the first one that has the parameter. All ranks call this together."""
        for tie in self._ties:
            if tie.own is not None:
                _send_to_others(tie, tie.own.data)
                if context.rank() != tie.ranks[0]:
                    parameters.mark_copy(tie.own)

    @contextmanager
    def added(self) -> Iterator[None]:
        """Add up the gradients that ranks compute inside the ``with`` block. All ranks call this together.

        Raises UsageError, on all ranks, if only some of the ranks that have a parameter have frozen it.
        """
        self._refuse_half_frozen()
        trained = [(tie, tie.own) for tie in self._ties if tie.own is not None and tie.own.requires_grad]
        before = [own.grad for _, own in trained]
        for _, own in trained:
            own.grad = None
        yield
        for (tie, own), earlier in zip(trained, before, strict=True):
            gradient = _sum(tie, torch.zeros_like(own) if own.grad is None else own.grad.contiguous())
            own.grad = gradient if earlier is None else earlier + gradient

    def _refuse_half_frozen(self) -> None:
        """Raise UsageError if only some ranks train a parameter. They would wait for the gradients of the others."""
        if not self._ties:
            return
        trains = [tie.own is not None and tie.own.requires_grad for tie in self._ties]
        counts = torch.tensor(trains, dtype=torch.int64, device=context.device())
        dist.all_reduce(counts)
        for tie, count in zip(self._ties, counts.tolist(), strict=True):
            if count not in {0, len(tie.ranks)}:
                names = " and ".join(f"{name!r} on rank {rank}" for rank, name in tie.names.items())
                raise UsageError(
                    f"fd.pipeline: {names} are one parameter, and only some of these ranks have frozen it; call "
                    "requires_grad_ for each of these names."
                )


@torch.no_grad()
def _sum(tie: Tie, gradient: torch.Tensor) -> torch.Tensor:
    """Return the sum of the gradients of all ranks of a tie."""
    first, *others = tie.ranks
    if context.rank() != first:
        links.send(gradient, first)
    for other in others if context.rank() == first else ():
        received = torch.empty_like(gradient)
        links.receive(received, other)
        gradient += received
    _send_to_others(tie, gradient)
    return gradient


def _send_to_others(tie: Tie, tensor: torch.Tensor) -> None:
    """Replace the values of a tensor by those of the first rank of a tie."""
    first, *others = tie.ranks
    if context.rank() != first:
        links.receive(tensor, first)
        return
    for other in others:
        links.send(tensor, other)
