"""Shards a model with `fd.prepare`, in a cell. torch_world.py precedes."""

import farandole as fd
import torch


def distribute(model):
    """Return the model and its optimizer, prepared for training on all ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, _ = fd.prepare(model, optimizer, mesh={"shard": -1})
    return model, optimizer
