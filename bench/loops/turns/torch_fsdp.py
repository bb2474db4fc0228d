"""Shards a model as in torch's documentation of FSDP2, for a script under torchrun. torch_world.py precedes."""

import torch
from torch.distributed.fsdp import fully_shard


def distribute(model):
    """Return the model and its optimizer, prepared for training on all ranks."""
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)
