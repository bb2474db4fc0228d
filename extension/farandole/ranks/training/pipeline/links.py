"""The process group over which the ranks of a pipeline send tensors to each other."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from farandole.ranks.world import process_group, world

_groups: list[Any] = []
"""The group of the last pipeline, if there was one. A cell that runs again does not connect the ranks again."""


def group() -> Any:
    """Return the group of all ranks for a pipeline. All ranks must call this together.

    The group of the world would not do. Gloo limits the time in which a rank waits for another one to send by the
    timeout with which the group was made, which is that of a connection. A stage may compute for longer.
    """
    if not any(map(process_group.is_alive, _groups)):
        with world.current().connecting():
            _groups[:] = [dist.new_group(timeout=world.COLLECTIVE_TIMEOUT)]
    return _groups[0]


def send(tensor: torch.Tensor, rank: int) -> None:
    """Send a tensor to another rank."""
    dist.send(tensor, rank, group=_groups[0])


def receive(tensor: torch.Tensor, rank: int) -> None:
    """Replace the values of a tensor by those that another rank sends."""
    dist.recv(tensor, rank, group=_groups[0])
