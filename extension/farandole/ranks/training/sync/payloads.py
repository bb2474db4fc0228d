"""Encodes a vector of parameter changes for the network, in fewer bits than single precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

BLOCK = 256
"""Elements that share one scale in the payloads ``int8`` and ``int4``."""
SMALLEST_SCALE = 2.0**-100
"""A block of zeros has this scale, because the elements of a block are divided by its scale."""
FLOAT_SCALES = {torch.float32: 1.0, torch.float16: 2.0**10}
"""Factors before the conversion. Half precision has few digits below 6e-5, where changes of parameters often are."""


class Payload(ABC):
    """How a vector of single precision travels."""

    summable: ClassVar[bool]
    """Whether the network can add encoded vectors (an all-reduce). Otherwise each rank gathers those of all ranks."""

    @abstractmethod
    def encode(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return ``vector``, of shape (n,), encoded. If it can be summed, the sum of ``ranks`` vectors has no overflow.

        Elements that would overflow are clipped.
        """

    @abstractmethod
    def decode(self, encoded: torch.Tensor, count: int) -> torch.Tensor:
        """Return the ``count`` elements of an encoded vector in single precision."""


class Float(Payload):
    """The vector in a type of floating point numbers."""

    summable = True

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._scale = FLOAT_SCALES[dtype]

    def encode(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return ``vector`` in this type."""
        most = 0.999 * torch.finfo(self._dtype).max / ranks  # less than the largest number, because sums are rounded
        return (vector * self._scale).clamp_(-most, most).to(self._dtype)

    def decode(self, encoded: torch.Tensor, count: int) -> torch.Tensor:
        """Return the vector in single precision."""
        return encoded[:count].float() / self._scale


class Integer(Payload):
    """Whole numbers of 8 or 4 bits, in blocks of 256 elements. Each block has a scale of two bytes (bfloat16).

    The encoded vector is one vector of bytes: first the numbers, then the scales.
    """

    summable = False

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._most = 2 ** (bits - 1) - 1

    def encode(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return ``vector`` as bytes, filled up with zeros to whole blocks."""
        del ranks  # numbers are gathered, not summed
        blocks = torch.nn.functional.pad(vector, (0, -len(vector) % BLOCK)).view(-1, BLOCK)
        scales = (blocks.abs().amax(1, keepdim=True) / self._most).clamp_min(SMALLEST_SCALE).bfloat16()
        numbers = (blocks / scales.float()).round_().clamp_(-self._most, self._most).to(torch.int8).flatten()
        return torch.cat([self._packed(numbers), scales.flatten().view(torch.uint8)])

    def decode(self, encoded: torch.Tensor, count: int) -> torch.Tensor:
        """Return the vector in single precision."""
        blocks = -(-count // BLOCK)
        size = blocks * BLOCK * self._bits // 8
        scales = encoded[size : size + 2 * blocks].clone().view(torch.bfloat16).float()
        numbers = self._unpacked(encoded[:size]).view(-1, BLOCK).float()
        return numbers.mul_(scales.unsqueeze(1)).flatten()[:count]

    def _packed(self, numbers: torch.Tensor) -> torch.Tensor:
        if self._bits == 8:
            return numbers.view(torch.uint8)
        pairs = numbers.view(torch.uint8).view(-1, 2)
        return (pairs[:, 0] & 15) | (pairs[:, 1] << 4)

    def _unpacked(self, packed: torch.Tensor) -> torch.Tensor:
        if self._bits == 8:
            return packed.view(torch.int8)
        # A shift to the left and an arithmetic shift to the right copy the sign of the lower four bits.
        signed = packed.view(torch.int8)
        return torch.stack([(signed << 4) >> 4, signed >> 4], dim=1).flatten()


PAYLOADS: dict[str, Payload] = {
    "fp32": Float(torch.float32),
    "fp16": Float(torch.float16),
    "int8": Integer(8),
    "int4": Integer(4),
}
