"""Captures, restores and seeds the random number generators of this rank.

These are the generators of Python, of NumPy (if imported), and of torch on the CPU and on the rank's GPU.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from farandole.ranks import context


def capture() -> dict[str, Any]:
    """Return the states of this rank's generators, by name. NumPy and CUDA are included only if the rank uses them."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = numpy.random.get_state()
    if uses_gpu():
        states["cuda"] = torch.cuda.get_rng_state(context.device())
    return states


def restore(states: dict[str, Any]) -> None:
    """Set the generators to ``states`` from `capture`. Generators that are missing on either side are ignored."""
    if "python" in states:
        random.setstate(states["python"])
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "numpy" in states and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(states["numpy"])
    if "cuda" in states and uses_gpu():
        torch.cuda.set_rng_state(states["cuda"], context.device())


def seed(number: int, rank: int) -> None:
    """Seed all generators from ``number`` and ``rank``, for a rank without a saved state."""
    # Seeding from a string gives uncorrelated generators for neighbouring numbers, unlike the sum of both numbers.
    own = random.Random(f"{number}/{rank}").getrandbits(32)
    random.seed(own)
    torch.manual_seed(own)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(own)


@contextlib.contextmanager
def seeded(number: int, *, gpu: bool = False) -> Iterator[None]:
    """Seed the generators that samplers use (torch on the CPU, Python, NumPy), and restore their states on exit.

    ``gpu`` says whether that of the rank's GPU is seeded, too.
    """
    numpy = sys.modules.get("numpy")
    gpu = gpu and context.device().type == "cuda"
    if gpu:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    before = {name: state for name, state in capture().items() if gpu or name != "cuda"}
    # torch.manual_seed would seed all GPUs.
    torch.default_generator.manual_seed(number)
    if gpu:
        torch.cuda.default_generators[context.device().index].manual_seed(number)
    random.seed(number)
    if numpy:
        numpy.random.seed(number % 2**32)
    try:
        yield
    finally:
        restore(before)


def uses_gpu() -> bool:
    """Return whether this process uses a GPU.

    The check must not create a CUDA context, because a context takes GPU memory.
    """
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
