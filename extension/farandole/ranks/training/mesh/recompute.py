"""Activation checkpointing: activations are computed again in the backward pass, instead of being kept."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(blocks: Iterable[nn.Module], *, wanted: bool) -> None:
    """Make each of these modules compute its activations again in the backward pass, or undo that.

    Source: T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
    """
    for block in blocks:
        # `torch.distributed.algorithms._checkpoint` has a wrapper, but it changes the names of parameters.
        own = vars(block).get("forward")
        already = isinstance(own, partial) and own.func is checkpoint
        if wanted and not already:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        elif already and not wanted:
            del block.forward
