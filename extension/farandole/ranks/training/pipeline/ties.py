"""Keeps parameters equal that stages on several ranks have, such as an embedding that is tied to the head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from farandole.ranks import context
from farandole.ranks.training.pipeline import links, parameters


@dataclass(frozen=True)
class Tie:
    """A parameter that several ranks have.

    Attributes:
        ranks: these ranks, in ascending order.
        own: this rank's copy of the parameter, or None if it has none.
    """

    ranks: tuple[int, ...]
    own: nn.Parameter | None


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
            by_rank = {stage % context.size(): name for stage, name in names.items()}
            name = by_rank.get(context.rank())
            if len(by_rank) > 1:
                ties.append(Tie(tuple(sorted(by_rank)), None if name is None else module.get_parameter(name)))
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
        """Add up the gradients that ranks compute inside the ``with`` block. All ranks call this together."""
        trained = [(tie, tie.own) for tie in self._ties if tie.own is not None and tie.own.requires_grad]
        before = [own.grad for _, own in trained]
        for _, own in trained:
            own.grad = None
        yield
        for (tie, own), earlier in zip(trained, before, strict=True):
            gradient = _sum(tie, torch.zeros_like(own) if own.grad is None else own.grad.contiguous())
            own.grad = gradient if earlier is None else earlier + gradient


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
