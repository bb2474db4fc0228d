"""Computes the steps of a model whose stages are on different ranks, with the schedules of torch."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.utils._pytree import tree_leaves, tree_map

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.training.pipeline import links, tracing
from farandole.ranks.training.pipeline.alone import Loss, check_loss, check_output
from farandole.ranks.training.pipeline.model import Tensors
from farandole.ranks.training.pipeline.stages import Stage, has_gradients
from farandole.ranks.training.pipeline.ties import Ties
from farandole.ranks.world import collectives

Batch = Mapping[str, torch.Tensor]
"""The inputs of the model, by their names in the graph."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A schedule of torch, with the sizes of its buffers.

    Attributes:
        key: what the sizes depend on.
        schedule: the schedule.
        dtype: the dtype of the loss.
    """

    key: tuple[Any, ...]
    schedule: Any
    dtype: torch.dtype


class Staged:
    """Computes steps together with the other ranks. Each rank has every n-th stage, where n is the number of ranks.

    torch could find the sizes of its buffers by itself, but it computes stages from memory without values for that,
    which would change the statistics of batch normalization, and an error in one stage would leave other ranks waiting.

    Args:
        stages: the stages of this rank, by their numbers.
        count (int): the number of stages on all ranks.
        ties: the parameters that several ranks have.
        schedule (str): the name of the schedule.
        loss_fn: the loss.
        microbatches (int): the number of microbatches.
    """

    def __init__(
        self, stages: Mapping[int, Stage], count: int, *, ties: Ties, schedule: str, loss_fn: Loss, microbatches: int
    ) -> None:
        self._stages = stages
        self._last = count - 1
        self._size = context.size()
        self._ties = ties
        self._schedule = schedule
        self._loss_fn = loss_fn
        self._microbatches = microbatches
        self._device = context.device()
        self._module = next(iter(stages.values())).module
        self._built: Built | None = None

    def step(self, inputs: Tensors, target: torch.Tensor) -> torch.Tensor:
        """Add the gradients of the mean loss of a batch, and return that loss."""
        # A schedule that was left in the middle of a step cannot be used again.
        built, self._built = self._built, None
        key, batch = self._key(*inputs, target), _named(inputs)
        if built is None or built.key != key:
            built = self._build(key, batch, target)
        losses: list[torch.Tensor] = []
        with self._ties.added(), _unwrapped_errors():
            built.schedule.step(target=target, losses=losses, return_outputs=False, **batch)
        self._built = built
        loss = torch.stack(losses).detach().sum() if losses else torch.empty((), dtype=built.dtype, device=self._device)
        dist.broadcast(loss, src=self._owner(self._last))
        return loss

    def forward(self, inputs: Tensors) -> Any:
        """Return what the model returns for a batch, without gradients."""
        _check_same_batch(*inputs)
        result, handed = self._through(_named(inputs))
        if context.rank() == self._owner(self._last):
            result = tree_map(lambda tensor: tensor.contiguous(), result)
        else:
            result = tree_map(self._empty, handed[-1])
        for tensor in tree_leaves(result):
            dist.broadcast(tensor, src=self._owner(self._last))
        return result

    def _owner(self, index: int) -> int:
        return index % self._size

    def _key(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        kind = self._device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return self._module.training, autocast, *((tensor.shape, tensor.dtype) for tensor in tensors)

    def _build(self, key: tuple[Any, ...], batch: Batch, target: torch.Tensor) -> Built:
        """Return a schedule for batches of this size. All ranks call this together."""
        _check_same_batch(*batch.values(), target)
        first, *_ = target.chunk(self._microbatches)
        with _unchanged(self._module), torch.no_grad():
            result, handed = self._through({name: tensor[: len(first)] for name, tensor in batch.items()})
            _, like = self._shared(self._owner(self._last), lambda: self._checked_loss(result, first))
        metas = [tuple(map(_with_gradients, tree_leaves(one))) for one in handed]
        stages = [
            PipelineStage(
                stage,
                index,
                self._last + 1,
                self._device,
                input_args=metas[index - 1] if index else (),
                output_args=metas[index],
                group=links.group(),
            )
            for index, stage in self._stages.items()
        ]
        kind = get_schedule_class(self._schedule)
        own = stages if issubclass(kind, PipelineScheduleMulti) else stages[0]
        # torch would divide all gradients, including those of an earlier step that the user accumulates.
        schedule = kind(own, self._microbatches, loss_fn=self._share_of_loss, scale_grads=False)
        return Built(key=key, schedule=schedule, dtype=like.dtype)

    def _share_of_loss(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        return self._loss_fn(output, target) / self._microbatches

    def _checked_loss(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        loss = self._loss_fn(output, target)
        check_loss(loss)
        return loss

    def _through(self, batch: Batch) -> tuple[Any, list[Any]]:
        """Compute all stages, one after another.

        Returns:
            tuple: what the model returns, on the rank of the last stage; and what each stage returns, on all ranks,
            with tensors on the device ``meta``.
        """
        received: Tensors = ()
        result, handed = None, []
        for index in range(self._last + 1):
            result, like = self._shared(self._owner(index), lambda: self._computed(index, received, batch))  # noqa: B023 - called at once
            handed.append(like)
            if index < self._last:
                received = self._moved(result, like, self._owner(index), self._owner(index + 1))
        return result, handed

    def _computed(self, index: int, received: Tensors, batch: Batch) -> Any:
        stage = self._stages[index]
        result = stage(*received, **batch)
        if index == self._last:
            check_output(result)
            return result
        for name, value in zip(stage.handed, result, strict=True):
            if not isinstance(value, torch.Tensor):
                raise UsageError(
                    f"fd.pipeline: stage {index} computes {name!r} of type {type(value).__name__}, which stage "
                    f"{index + 1} needs, and only tensors are sent between stages; compute it from the inputs of the "
                    "model, or inside the module that uses it."
                )
        return result

    def _shared(self, owner: int, work: Callable[[], Any]) -> tuple[Any, Any]:
        """Do some work on one rank.

        Returns:
            tuple: its result on that rank and None on others; and on all ranks, the result with tensors on the device
            ``meta``.

        Raises:
            UsageError: on all ranks, if the work raises it.
        """
        result, head = None, b""
        if context.rank() == owner:
            try:
                result = work()
                head = pickle.dumps(tree_map(_without_memory, result))
            except UsageError as exc:
                head = pickle.dumps(exc)
        # Unpickling is safe, because the data comes from another rank of the same user.
        found = pickle.loads(collectives.broadcast_bytes(head, owner))
        if isinstance(found, UsageError):
            raise found
        return result, found

    def _moved(self, values: Sequence[torch.Tensor] | None, like: Any, source: int, target: int) -> Tensors:
        """Send tensors from one rank to another, which returns them. Other ranks return nothing."""
        if context.rank() == source:
            for tensor in values or ():
                links.send(tensor, target)
        if context.rank() != target:
            return ()
        received = tuple(map(self._empty, like))
        for tensor in received:
            links.receive(tensor, source)
        return received

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(like, device=self._device)


def _named(inputs: Tensors) -> dict[str, torch.Tensor]:
    return {f"{tracing.INPUT}{index}": tensor for index, tensor in enumerate(inputs)}


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _with_gradients(meta: torch.Tensor) -> torch.Tensor:
    return meta.requires_grad_(has_gradients(meta.dtype))


def _check_same_batch(*tensors: torch.Tensor) -> None:
    """Raise UsageError if the ranks have different batches. The first stage would use the inputs of one rank, and the
    loss the target of another."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.shape} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    if len(set(collectives.gather_bytes(digest.digest()))) > 1:
        raise UsageError(
            "fd.pipeline: the ranks have different batches, and all of them need the same; pass the model and the "
            "DataLoader to fd.prepare, which gives each rank the whole batch."
        )


@contextmanager
def _unwrapped_errors() -> Iterator[None]:
    """Raise the error of a stage itself. torch raises it as the cause of a RuntimeError, which hides what it says."""
    try:
        yield
    except RuntimeError as exc:
        raise exc.__cause__ or exc from None


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Restore the buffers of a module and the random numbers of this rank on exit."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    states = rng.capture()
    try:
        yield
    finally:
        rng.restore(states)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
