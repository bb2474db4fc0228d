"""Checks the arguments of ``fd.pipeline``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.state.shards import is_sharded
from farandole.ranks.training.pipeline.model import Pipeline
from farandole.ranks.world import membership
from farandole.suggestions import did_you_mean

SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B")
"""The schedules, by the names that torch gives them."""


def check(model: Any, loss_fn: Any, microbatches: Any, schedule: Any) -> None:
    """Raise UsageError if one of these arguments is wrong, or if the ranks cannot have a pipeline."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"fd.pipeline: the model is a {type(model).__name__}; pass a torch.nn.Module.")
    if isinstance(model, Pipeline):
        raise UsageError("fd.pipeline: the model is cut already; create it again in the cell, before fd.pipeline.")
    if isinstance(model, DistributedDataParallel) or is_sharded(model):
        raise UsageError(
            "fd.pipeline: fd.prepare has wrapped or sharded this model, or fd.pipeline has cut it before; create the "
            "model again in the cell, and call fd.pipeline first."
        )
    if hasattr(model, "_orig_mod"):
        raise UsageError("fd.pipeline: the model is compiled, and cannot be cut; pass the model itself.")
    if not callable(loss_fn):
        raise UsageError(
            f"fd.pipeline: loss_fn is {loss_fn!r}; it must be a function of the output and the target, e.g. "
            "torch.nn.functional.cross_entropy."
        )
    if type(microbatches) is not int or microbatches < 1:
        raise UsageError(f"fd.pipeline: microbatches is {microbatches!r}; it must be a whole number of at least 1.")
    if schedule not in SCHEDULES:
        raise UsageError(
            f"fd.pipeline: there is no schedule {schedule!r}; the schedules are {', '.join(SCHEDULES)}."
            f"{did_you_mean(str(schedule), SCHEDULES)}"
        )
    _refuse_worlds_without_pipelines()


def _refuse_worlds_without_pipelines() -> None:
    backend, size = context.backend(), context.size()
    if backend == "horovod" or (backend == "none" and size > 1):
        raise UsageError(
            f"fd.pipeline: a pipeline needs the backend torch, and the ranks have {backend}; use %%distributed_train "
            "--backend torch, or start the cluster with --backend torch."
        )
    if membership.current().active:
        raise UsageError(
            "fd.pipeline: an elastic run changes its number of ranks, which a pipeline cannot follow; leave out "
            "--elastic."
        )
    if size > 1 and 0 < torch.cuda.device_count() < context.local_size():
        raise UsageError(
            "fd.pipeline: the ranks of this worker share a GPU, and Gloo, which they use then, sends no tensors from "
            "GPU to GPU; start one rank for each GPU with --ranks."
        )


def check_split(model: nn.Module, split: Any) -> None:
    """Raise UsageError if ``split`` does not name modules of the model."""
    if not isinstance(split, list | tuple) or not split or not all(isinstance(name, str) for name in split):
        raise UsageError(
            f"fd.pipeline: split is {split!r}; it must be a list of names of modules, each of which begins a stage, "
            'such as split=["blocks.2"].'
        )
    if twice := [name for name in split if list(split).count(name) > 1]:
        raise UsageError(f"fd.pipeline: split names {twice[0]!r} twice; each module begins one stage.")
    known = [name for name, _ in model.named_modules() if name]
    if unknown := [name for name in split if name not in known]:
        raise UsageError(
            f"fd.pipeline: the {type(model).__name__} has no module {unknown[0]!r}; model.named_modules() lists the "
            f"names.{did_you_mean(unknown[0], known)}"
        )


def check_stages(stages: int, microbatches: int, schedule: str) -> None:
    """Raise UsageError if this number of stages does not fit the ranks or the schedule."""
    ranks = context.size()
    if schedule == "Interleaved1F1B":
        if stages % ranks or stages == ranks:
            raise UsageError(
                f"fd.pipeline: split makes {stages} stages, and Interleaved1F1B needs a multiple of the {ranks} ranks, "
                f"at least {2 * ranks}; name {2 * ranks - 1} modules in split, or use the schedule 1F1B."
            )
        rounds = max(1, microbatches // ranks)
        if microbatches % rounds:
            raise UsageError(
                f"fd.pipeline: Interleaved1F1B cannot use {microbatches} microbatches on {ranks} ranks; set a multiple "
                f"of {ranks}."
            )
    elif stages != ranks:
        raise UsageError(
            f"fd.pipeline: split makes {stages} stages, and there are {ranks} ranks, each of which needs one; name "
            f"{ranks - 1} modules in split, or change the number of ranks with %cluster scale or --ranks."
        )
    if schedule == "1F1B" and microbatches < stages:
        raise UsageError(
            f"fd.pipeline: 1F1B needs at least as many microbatches as stages, and there are {microbatches} for "
            f"{stages} stages; set microbatches={stages} or more, or use the schedule GPipe."
        )
