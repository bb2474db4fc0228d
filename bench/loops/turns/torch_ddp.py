"""Sets up DistributedDataParallel, both in a cell and under torchrun. torch_world.py precedes."""

import torch


def distribute(model):
    """Return the model and its optimizer, prepared for training on all ranks."""
    model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)
