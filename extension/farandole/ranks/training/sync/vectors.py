"""A model's parameters as one vector of single precision, which a collective can send as a whole."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class ParameterVector:
    """Copies the parameters of a model that are trained to and from vectors of shape (n,).

    Attributes:
        count: the number n of elements.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.count = sum(self._sizes)

    @torch.no_grad()
    def read(self, into: torch.Tensor | None = None) -> torch.Tensor:
        """Return a copy of the parameters, in the vector ``into`` if there is one."""
        device = self._parameters[0].device
        vector = torch.empty(self.count, device=device) if into is None else into
        torch._foreach_copy_(self._views(vector), [parameter.detach() for parameter in self._parameters])
        return vector

    @torch.no_grad()
    def write(self, vector: torch.Tensor) -> None:
        """Set the parameters to ``vector``."""
        torch._foreach_copy_([parameter.detach() for parameter in self._parameters], self._views(vector))

    @torch.no_grad()
    def add(self, vector: torch.Tensor) -> None:
        """Add ``vector`` to the parameters."""
        for parameter, change in zip(self._parameters, self._views(vector), strict=True):
            parameter.add_(change)

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(vector, self._sizes)
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]
