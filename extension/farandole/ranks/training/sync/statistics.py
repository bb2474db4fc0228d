"""The running statistics of batch normalization layers, which each rank gathers from its own batches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.swa_utils import update_bn

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training.sync import exchange


class BatchStatistics:
    """The running means and variances of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._layers = [module for module in model.modules() if isinstance(module, _NormBase)]

    def recompute(self, batches: Iterable[Any]) -> None:
        """Replace the statistics by those of these batches, at the parameters as they are now.

        Raises:
            UsageError: there is no batch.
        """
        each = iter(batches)
        try:
            first = next(each)
        except StopIteration:
            raise UsageError("fd.sync.finish: there are no batches; pass some, or leave the argument out.") from None
        update_bn(chain([first], each), self._model, device=context.device())

    @torch.no_grad()
    def pool(self, number: int) -> None:
        """Set the statistics to those of all ranks' batches together. All ranks must call this method.

        ``number`` is that of the training, as `Averager.number`.
        """
        # The tensors are looked up each time, because loading a state may replace them.
        pairs = [
            (layer.running_mean, layer.running_var)
            for layer in self._layers
            if layer.running_mean is not None and layer.running_var is not None
        ]
        if not pairs:
            return
        # The difference of two squares needs double precision.
        means = torch.cat([mean for mean, _ in pairs]).double()
        squares = torch.cat([variance for _, variance in pairs]).double() + means**2
        both = exchange.start_sum(torch.stack([means, squares]) / context.size(), f"{number}.statistics")()
        sizes = [len(mean) for mean, _ in pairs]
        variances = (both[1] - both[0] ** 2).clamp_min(0)
        pooled = zip(torch.split(both[0], sizes), torch.split(variances, sizes), strict=True)
        for (mean, variance), (new_mean, new_variance) in zip(pairs, pooled, strict=True):
            mean.copy_(new_mean)
            variance.copy_(new_variance)
