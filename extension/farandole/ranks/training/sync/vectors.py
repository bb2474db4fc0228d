"""Parameters as one vector of floating-point numbers, which a collective can send as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import nn

from farandole.exceptions import UsageError


class ParameterVector:
    """Copies trained parameters to and from vectors of shape (n,), in single precision or in double if some need it.

    Parameters that require no gradients are left out.

    Attributes:
        rounds: whether some parameters have fewer digits than the vectors.

    Raises:
        UsageError: a parameter is complex, or there is none that requires gradients.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if not self._parameters:
            raise UsageError(
                "fd.prepare: the optimizer has no parameter that requires gradients, so there is nothing to average. "
                "Call requires_grad_() on some before fd.prepare."
            )
        if any(parameter.is_complex() for parameter in self._parameters):
            raise UsageError('fd.prepare: complex parameters need sync="step".')
        self._known = {id(parameter) for parameter in self._parameters}
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._count = sum(self._sizes)
        double = any(parameter.dtype == torch.float64 for parameter in self._parameters)
        self._dtype = torch.float64 if double else torch.float32
        self.rounds = any(parameter.dtype != self._dtype for parameter in self._parameters)

    def lacks(self, parameters: Iterable[nn.Parameter]) -> int:
        """Return how many of these parameters require gradients and are not in the vectors."""
        return sum(one.requires_grad and id(one) not in self._known for one in parameters)

    def read(self) -> torch.Tensor:
        """Return a copy of the parameters."""
        vector = torch.empty(self._count, dtype=self._dtype, device=self._parameters[0].device)
        self.copy_to(vector)
        return vector

    @torch.no_grad()
    def copy_to(self, vector: torch.Tensor) -> None:
        """Copy the parameters to ``vector``. This is several times faster than `read`, which allocates memory."""
        torch._foreach_copy_(self._views(vector), [parameter.detach() for parameter in self._parameters])

    @torch.no_grad()
    def write(self, vector: torch.Tensor) -> None:
        """Set the parameters to ``vector``."""
        torch._foreach_copy_([parameter.detach() for parameter in self._parameters], self._views(vector))

    @torch.no_grad()
    def add(self, vector: torch.Tensor) -> None:
        """Add ``vector`` to the parameters."""
        own = [parameter.detach() for parameter in self._parameters]
        changes = [change.to(one.dtype) for change, one in zip(self._views(vector), own, strict=True)]
        torch._foreach_add_(own, changes)

    def digest(self) -> str:
        """Return a text that is equal on two ranks only if their parameters are."""
        return hashlib.blake2b(self.read().cpu().numpy().tobytes(), digest_size=16).hexdigest()

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(vector, self._sizes)
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]
