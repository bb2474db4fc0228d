"""Computes how many bytes a rank sends in a step of a sharded model."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from farandole.ranks.training.mesh.shape import MeshShape


def sent_bytes(model: nn.Module, shape: MeshShape, precision: torch.dtype | None = None) -> int | None:
    """Return how many bytes a rank sends in a step of one forward and one backward pass.

    All collectives count as rings, in which each of n ranks sends (n - 1) / n of a gathered tensor. With s ranks along
    ``shard``, d along ``data``, and shares of p bytes of parameters and g bytes of gradients on this rank:

    - Each unit gathers its parameters in both passes: 2 (s - 1) p. What is in no unit is gathered once: (s - 1) p.
    - The gradients are reduced and scattered: (s - 1) g.
    - The ranks along ``data`` average the shares of the gradients with an all-reduce: 2 (d - 1) / d g.

    The padding of uneven shares is left out. It returns None with ranks along ``tensor``, because the size of the
    activations that they exchange is not known.

    Args:
        model (torch.nn.Module): a model that ``fully_shard`` has sharded.
        shape (MeshShape): its mesh.
        precision (torch.dtype, optional): the dtype in which parameters are gathered. Gradients are then float32.

    Source: Y. Zhao et al., "PyTorch FSDP", 2023; P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce", 2009.
    """
    if shape.tensor > 1:
        return None
    units = [module for module in model.modules() if isinstance(module, FSDPModule) and module is not model]
    inner = {id(parameter) for unit in units for parameter in unit.parameters()}
    peers, total = shape.shard - 1, 0.0
    for parameter in model.parameters():
        count = parameter.to_local().numel() if isinstance(parameter, DTensor) else parameter.numel()
        gathers = 2 if id(parameter) in inner else 1
        total += gathers * peers * count * (precision or parameter.dtype).itemsize
        if parameter.requires_grad:
            share = count * (torch.float32 if precision else parameter.dtype).itemsize
            total += (peers + 2 * (shape.data - 1) / shape.data) * share
    return round(total)
