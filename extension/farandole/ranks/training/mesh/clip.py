"""``fd.clip_grad_norm_``: clips the gradients of a model, whether a mesh shards it or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from farandole.ranks.training.pipeline import parameters as pipelines

COPIES = "copies"
"""The group of gradients that another rank counts, because it has the same parameter of a pipeline."""


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Scale the gradients so that their norm over all parameters, on all ranks of the mesh, is at most ``max_norm``.

    It is ``torch.nn.utils.clip_grad_norm_`` for every model that :func:`farandole.prepare` returns. torch's function
    refuses parameters that are sharded over different dimensions of a mesh, and knows only one stage of a pipeline.
    For a mesh or a pipeline, all ranks call this together, with all parameters of the model.

    Args:
        parameters (iterable of torch.Tensor): the parameters, e.g. ``model.parameters()``.
        max_norm (float): largest norm of the gradients afterwards.
        norm_type (float): order of the norm, e.g. ``2.0`` or ``math.inf``.

    Returns:
        torch.Tensor: the norm of the gradients before they were scaled, with no dimensions, the same on all ranks.

    Source: R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", 2013.
    """
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    by_mesh: dict[object, list[torch.Tensor]] = defaultdict(list)
    for parameter in given:
        if (gradient := parameter.grad) is not None:
            by_mesh[_mesh(parameter)].append(gradient)
    counted = [gradients for mesh, gradients in by_mesh.items() if mesh is not COPIES]
    norms = [_whole(nn.utils.get_total_norm(gradients, norm_type)) for gradients in counted]
    total = torch.linalg.vector_norm(torch.stack(norms), norm_type) if norms else torch.tensor(0.0)
    if any(map(pipelines.is_in_stage, given)):
        total = pipelines.norm_of_all_stages(total, norm_type)
    for gradients in by_mesh.values():
        _scale(gradients, max_norm, total)
    return total


def _mesh(parameter: torch.Tensor) -> object:
    """Return what gradients have in common whose norm is computed at once."""
    if isinstance(gradient := parameter.grad, DTensor):
        return gradient.device_mesh
    return COPIES if pipelines.is_copy(parameter) else None


def _whole(norm: torch.Tensor) -> torch.Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _scale(gradients: list[torch.Tensor], max_norm: float, total: torch.Tensor) -> None:
    # As in torch, so that all devices do the same without waiting for the norm.
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        local.detach().mul_(factor.to(local.device))
