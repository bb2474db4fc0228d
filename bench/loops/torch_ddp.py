"""Sets up DistributedDataParallel for the throughput loop. turns.py follows, both in a cell and under torchrun."""

import torch
import torch.distributed as dist

if not dist.is_initialized():
    dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def distribute(model):
    """Return the model and its optimizer, prepared for training on all ranks."""
    model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def from_rank_0(number):
    """Broadcast rank 0's number, and return it on all ranks."""
    shared = torch.tensor(number)
    dist.broadcast(shared, src=0)
    return shared.item()
