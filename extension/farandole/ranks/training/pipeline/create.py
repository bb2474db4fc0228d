"""``fd.pipeline``: cuts a model into stages, one for each rank."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from farandole.ranks import context

if TYPE_CHECKING:
    import torch
    from torch import nn

    from farandole.ranks.training.pipeline.model import Pipeline


def pipeline(
    model: nn.Module,
    split: Sequence[str],
    *,
    loss_fn: Callable[[Any, torch.Tensor], torch.Tensor],
    microbatches: int = 8,
    schedule: str = "1F1B",
) -> Pipeline:
    """Cut a model into stages, of which each rank trains one, for models that do not fit on one rank.

    Each batch is divided into microbatches. While a rank computes its stage for one of them, other ranks compute theirs
    for others. All ranks start with the parameters of rank 0. On one rank, the result is the whole model, which trains
    in the same way.

    Pass the result to :func:`farandole.prepare`, which gives all ranks the same batches.

    Args:
        model (torch.nn.Module): the whole model. If it is made in a block of :func:`farandole.deferred`, each rank
            gives memory only to its stage.
        split (list of str): the names of the modules that begin the second and each further stage, as in
            ``model.named_modules()``. There is one stage for each rank.
        loss_fn (callable): returns the mean loss of a batch, from the model's output and the target.
        microbatches (int): the number of microbatches. The samples of a batch must divide into them.
        schedule (str): the order of the computations, by torch's name: ``"1F1B"``, ``"GPipe"`` or
            ``"Interleaved1F1B"``. The last one needs two stages or more for each rank.

    Returns:
        Pipeline: a module with the parameters of this rank's stage. ``step(x, y)`` computes gradients and returns the
        loss on all ranks. A call returns the output for a batch on all ranks, without gradients.

    Raises:
        UsageError: an argument is wrong, the model cannot be cut there, or the backend does not support pipelines.

    Source: Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019;
    D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021.

    Example::

        model = fd.pipeline(Model(), split=["blocks.4", "blocks.8"], loss_fn=F.cross_entropy)
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer, loader = fd.prepare(model, optimizer, loader)
        for x, y in loader:
            optimizer.zero_grad()
            loss = model.step(x, y)
            optimizer.step()
    """
    # torch takes a second to import.
    from farandole.ranks.training import parallel
    from farandole.ranks.training.mesh.deferred import Materializer
    from farandole.ranks.training.pipeline import arguments, parameters, stages, tracing
    from farandole.ranks.training.pipeline.alone import Alone
    from farandole.ranks.training.pipeline.model import Pipeline

    arguments.check(model, loss_fn, microbatches, schedule)
    if context.size() > 1:
        parallel.check_same_model(model, "fd.pipeline")
    arguments.check_split(model, split)
    found = stages.stages_of(model, split)
    shared = stages.shared_parameters(model, found)
    # The objects of a pipeline form reference cycles, so an earlier one of this cell still has its memory.
    gc.collect()
    inputs = len(tracing.required_inputs(type(model).forward))
    if context.size() == 1:
        materialize = Materializer(model)
        materialize(model)
        materialize.load(model)
        model.to(context.device())
        return Pipeline(model, Alone(model, loss_fn, microbatches), microbatches=microbatches, inputs=inputs)
    from farandole.ranks.training.pipeline import links
    from farandole.ranks.training.pipeline.staged import Staged
    from farandole.ranks.training.pipeline.ties import Ties

    arguments.check_stages(len(found), microbatches, schedule)
    parallel.broadcast_model(model, "torch")
    materialize = Materializer(model, alike=False)
    numbers = range(context.rank(), len(found), context.size())
    module = stages.subtree(model, [found[number] for number in numbers], materialize).to(context.device())
    materialize.load(module)
    parameters.mark(module.parameters())
    links.group()
    ties = Ties.of(module, shared)
    ties.start_alike()
    own = {number: stages.Stage(module, found[number], is_last=number == len(found) - 1) for number in numbers}
    runner = Staged(own, len(found), ties=ties, schedule=schedule, loss_fn=loss_fn, microbatches=microbatches)
    tied = [tuple(names.values()) for names in shared]
    return Pipeline(module, runner, microbatches=microbatches, inputs=inputs, shared=tied)
