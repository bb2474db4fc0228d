"""Sets up Horovod for the throughput loop. turns.py follows, both in a cell and under horovodrun."""

import horovod.torch as hvd
import torch

hvd.init()
rank, size = hvd.rank(), hvd.size()


def distribute(model):
    """Return the model and its optimizer, prepared for training on all ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def from_rank_0(number):
    """Broadcast rank 0's number, and return it on all ranks."""
    return hvd.broadcast(torch.tensor(number), root_rank=0).item()
