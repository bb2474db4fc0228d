"""Encodes a vector of parameter changes for the network, in fewer bits than single precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch

BLOCK = 256
"""Elements that share one scale in the payloads ``int8`` and ``int4``."""
SMALLEST_SCALE = 2.0**-100
"""A block of zeros has this scale, because the elements of a block are divided by its scale."""
PIECE = 2**18
"""Elements that a processor encodes at a time, so that they stay in its caches. This is several times faster."""
FLOAT_SCALES = {torch.float32: 1.0, torch.float16: 2.0**10}
"""Factors before the conversion. Half precision has few digits below 6e-5, where changes of parameters often are."""


class Payload(ABC):
    """Encodes a vector in single precision for the network, and decodes it."""

    summable: ClassVar[bool]
    """Whether an all-reduce can add encoded vectors. If not, each rank gathers the vectors of all ranks."""

    @abstractmethod
    def take(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Encode ``vector``, of shape (n,), and keep the rounding error in ``vector``.

        Elements that would overflow in a sum of ``ranks`` encoded vectors are clipped.
        """

    def encode(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Encode ``vector`` as `take` does, without modifying it."""
        return self.take(vector.clone(), ranks)

    @abstractmethod
    def add_to(self, vector: torch.Tensor, encoded: torch.Tensor, factor: float = 1.0) -> None:
        """Add ``factor`` times an encoded vector to ``vector``, which has as many elements."""

    def decode(self, encoded: torch.Tensor, count: int) -> torch.Tensor:
        """Return the ``count`` elements of an encoded vector in single precision."""
        vector = torch.zeros(count, dtype=torch.float32, device=encoded.device)
        self.add_to(vector, encoded)
        return vector


class Float(Payload):
    """The vector in a type of floating point numbers."""

    summable = True

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._scale = FLOAT_SCALES[dtype]

    def take(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return ``vector`` in this type, and leave in it what rounding loses."""
        most = 0.999 * torch.finfo(self._dtype).max / ranks  # less than the largest number, because sums are rounded
        encoded = torch.empty(len(vector), dtype=self._dtype, device=vector.device)
        for piece, target in zip(_pieces(vector), _pieces(encoded), strict=True):
            target.copy_((piece * self._scale).clamp_(-most, most))
            piece.sub_(target, alpha=1 / self._scale)
        return encoded

    def add_to(self, vector: torch.Tensor, encoded: torch.Tensor, factor: float = 1.0) -> None:
        """Add ``factor`` times an encoded vector to ``vector``."""
        for piece, change in zip(_pieces(vector), _pieces(encoded), strict=True):
            piece.add_(change.float(), alpha=factor / self._scale)


class Integer(Payload):
    """Whole numbers of 8 or 4 bits, in blocks of 256 elements. Each block has a scale of two bytes (bfloat16).

    The encoded vector is one vector of bytes: first the numbers, then the scales.
    """

    summable = False

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._most = 2 ** (bits - 1) - 1

    def take(self, vector: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return ``vector`` as bytes, filled up with zeros to whole blocks, and leave in it what rounding loses."""
        del ranks  # numbers are gathered, not summed
        blocks = -(-len(vector) // BLOCK)
        encoded = torch.empty(self._numbers_size(blocks) + 2 * blocks, dtype=torch.uint8, device=vector.device)
        for piece, (numbers, scales) in zip(_pieces(vector), self._parts(encoded, len(vector)), strict=True):
            self._take(piece, numbers, scales.unsqueeze(1))
        return encoded

    def add_to(self, vector: torch.Tensor, encoded: torch.Tensor, factor: float = 1.0) -> None:
        """Add ``factor`` times an encoded vector to ``vector``."""
        for piece, (numbers, scales) in zip(_pieces(vector), self._parts(encoded, len(vector)), strict=True):
            values = self._unpacked(numbers).float().mul_(scales.float().unsqueeze(1))
            piece.add_(values.flatten()[: len(piece)], alpha=factor)

    def _take(self, piece: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor) -> None:
        blocks = torch.nn.functional.pad(piece, (0, -len(piece) % BLOCK)).view(-1, BLOCK)
        scales.copy_((blocks.abs().amax(1, keepdim=True) / self._most).clamp_min_(SMALLEST_SCALE))
        exact = scales.float()
        whole = (blocks / exact).round_().clamp_(-self._most, self._most)
        numbers.copy_(self._packed(whole.to(torch.int8)))
        piece.sub_(whole.mul_(exact).flatten()[: len(piece)])

    def _parts(self, encoded: torch.Tensor, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the numbers and the scales of each piece of an encoded vector with ``count`` elements."""
        end = self._numbers_size(-(-count // BLOCK))
        numbers, scales = encoded[:end], encoded[end:].view(torch.bfloat16)
        length = _piece_length(encoded, count)
        bytes_of_numbers = torch.split(numbers, self._numbers_size(length // BLOCK))
        yield from zip(bytes_of_numbers, torch.split(scales, length // BLOCK), strict=True)

    def _numbers_size(self, blocks: int) -> int:
        return blocks * BLOCK * self._bits // 8

    def _packed(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the bytes of numbers of shape (blocks, `BLOCK`). Two numbers of 4 bits are half a block apart."""
        if self._bits == 8:
            return numbers.view(torch.uint8).flatten()
        low, high = torch.split(numbers.view(torch.uint8), BLOCK // 2, dim=1)
        return ((low & 15) | (high << 4)).flatten()

    def _unpacked(self, packed: torch.Tensor) -> torch.Tensor:
        """Return the numbers, of shape (blocks, `BLOCK`)."""
        signed = packed.view(torch.int8)
        if self._bits == 8:
            return signed.view(-1, BLOCK)
        # A shift to the left and an arithmetic shift to the right copy the sign of the lower four bits.
        bytes_of_blocks = signed.view(-1, BLOCK // 2)
        return torch.cat([(bytes_of_blocks << 4) >> 4, bytes_of_blocks >> 4], dim=1)


def _pieces(vector: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.split(vector, _piece_length(vector, len(vector)))


def _piece_length(tensor: torch.Tensor, count: int) -> int:
    """Return the length of the pieces of a vector with ``count`` elements, in whole blocks. A GPU needs no pieces."""
    return PIECE if tensor.device.type == "cpu" else max(1, -(-count // BLOCK)) * BLOCK


PAYLOADS: dict[str, Payload] = {
    "fp32": Float(torch.float32),
    "fp16": Float(torch.float16),
    "int8": Integer(8),
    "int4": Integer(4),
}
