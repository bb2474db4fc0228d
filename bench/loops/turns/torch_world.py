"""Joins the world of torch, both in a cell and under torchrun. The code that distributes a model follows."""

import torch
import torch.distributed as dist

if not dist.is_initialized():
    dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def from_rank_0(number):
    """Broadcast rank 0's number, and return it on all ranks."""
    shared = torch.tensor(number)
    dist.broadcast(shared, src=0)
    return shared.item()
