"""Predicts how much memory the training of a model needs on each rank, and the smallest mesh on which it fits."""

from __future__ import annotations

import functools
import gc
import math
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.preflight import gpus, machine
from farandole.ranks.training import memory
from farandole.ranks.training.mesh.shape import MeshShape
from farandole.ranks.training.mesh.units import units
from farandole.sizes import size_text

ADAM_COPIES = 2
"""How many values of its size Adam keeps for each parameter: the moving averages of its gradient and of the square."""
ACTIVATIONS_SHARE = 0.1
"""The share of a rank's memory that is left for activations, whose size is not known before the training."""
LEAST_PROCESS_BYTES = 200 * 2**20
"""The least memory of a process with torch. Files of models that are mapped into memory may be larger than what is
resident of them."""
UNIT_COPIES = 4
"""How many times a unit is in memory: its parameters, its gradients, the parameters of the next unit, and the buffer of
a collective."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What the training of a model needs, in bytes.

    - ``parameters``, ``gradients`` and ``optimizer`` are those of the whole model.
    - ``gathered`` is what a rank of a mesh needs beside its shares, because units are gathered.
    - ``process`` is what the process needs without models.
    - ``capacity`` is the memory of a rank.
    - ``step`` is what a step of the optimizer of the whole model needs for a moment.
    """

    parameters: int
    gradients: int
    optimizer: int
    gathered: int
    process: int
    capacity: int
    step: int = 0

    @property
    def state(self) -> int:
        """The size of parameters, gradients and optimizer state together."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def activations(self) -> int:
        """The size of the memory that is left for activations."""
        return math.ceil(ACTIVATIONS_SHARE * self.capacity)

    @property
    def beside(self) -> int:
        """The size of what each rank of a mesh needs beside its shares."""
        return self.gathered + self.process + self.activations

    def on(self, shape: MeshShape) -> int:
        """Return how many bytes a rank needs, as if ``tensor`` split all layers. A mesh of data only is no mesh."""
        parts = shape.shard * shape.tensor
        # DistributedDataParallel copies the gradients into the buckets that it averages.
        buckets = self.gradients if parts == 1 and shape.data > 1 else 0
        passes = self.activations + (self.gathered if parts > 1 else 0)
        # Activations and gathered units are freed before the step of the optimizer.
        return math.ceil(self.state / parts) + buckets + self.process + max(passes, math.ceil(self.step / parts))

    def fits(self, shape: MeshShape) -> bool:
        """Return whether the memory of a rank is large enough."""
        return self.on(shape) <= self.capacity


def smallest_mesh(needs: Needs, ranks: int) -> MeshShape | None:
    """Return the mesh with the fewest ranks along ``shard`` on which a model fits, or None if there is none.

    If the model fits without a mesh, it is a mesh of data only. If it needs more ranks than there are, it is the
    smallest mesh of more ranks.
    """
    if needs.fits(alone := MeshShape(data=ranks)):
        return alone
    room = needs.capacity - needs.beside
    if room <= 0:
        return None
    least = max(
        2, math.ceil(needs.state / room), math.ceil((needs.state + needs.step) / (needs.capacity - needs.process))
    )
    shard = next((size for size in range(least, ranks + 1) if ranks % size == 0), least)
    return MeshShape(data=max(1, ranks // shard), shard=shard)


def advice(needs: Needs, ranks: int, name: str, backend: str = "torch") -> str:
    """Return a sentence that says whether a model fits without a mesh or, if not, on which mesh."""
    best, capacity = smallest_mesh(needs, ranks), size_text(needs.capacity)
    if best is None:
        return (
            f"{name} fits on no mesh: in addition to its shares, each rank needs "
            f"{size_text(needs.beside)} for units, activations and the process, and has {capacity}; "
            "give wrap=[...] with the classes of smaller modules, or choose a larger profile."
        )
    if best.shard == 1:
        return f"{name} fits on each rank without a mesh."
    more = f" on {best.shard} ranks" if best.shard > ranks else ""
    other = "" if backend == "torch" else " with the backend torch"
    return (
        f"{name} does not fit on a rank without a mesh: with gradients, optimizer state, activations and the process "
        f"it needs {size_text(needs.on(MeshShape(data=ranks)))}, and a rank has {capacity}. The smallest mesh that "
        f"fits is mesh={best}{more}{other}."
    )


def meshes(needs: Needs, ranks: int) -> list[MeshShape]:
    """Return the meshes of data and shard for this number of ranks, and the smallest of more ranks if none fits."""
    own = [MeshShape(data=ranks // shard, shard=shard) for shard in range(1, ranks + 1) if ranks % shard == 0]
    best = smallest_mesh(needs, ranks)
    return own if best is None or best in own else [*own, best]


def needs_of(model: nn.Module, optimizer: Any = None, wrap: Sequence[type[nn.Module]] | None = None) -> Needs:
    """Return what the training of a model needs on this rank. It may have no memory yet, as from ``fd.deferred``.

    Without an optimizer, and for all others than SGD, the state is that of Adam.
    """
    gradients = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    return Needs(
        parameters=sum(parameter.nbytes for parameter in model.parameters()),
        gradients=gradients,
        optimizer=_copies(optimizer) * gradients,
        gathered=_gathered(model, wrap),
        process=_process_bytes(),
        capacity=rank_memory(),
        step=_step_copies(optimizer) * gradients,
    )


def fits_whole(model: nn.Module, optimizer: Any) -> bool:
    """Return whether the memory of a rank is large enough for the whole model. The size of lazy modules is unknown."""
    if any(map(nn.parameter.is_lazy, model.parameters())):
        return True
    return needs_of(model, optimizer).fits(MeshShape(data=context.size()))


class Announcer:
    """Sends advice to the driver before the memory of this rank is used up. The error of the rank contains it."""

    def __init__(self) -> None:
        self._needs: weakref.WeakKeyDictionary[nn.Module, Needs] = weakref.WeakKeyDictionary()
        """The needs of models that were prepared and are still in memory, the last one at the end."""
        self._warned = False

    def begin(self) -> None:
        """Announce at the beginning of a run that a model of an earlier cell leaves no room for another one.

        The rank may be out of memory before the cell calls ``fd.prepare``.
        """
        needs = next(reversed([*self._needs.values()]), None)
        self._warned = needs is not None and needs.state + needs.on(MeshShape(data=context.size())) > needs.capacity
        if needs is not None and self._warned:
            _send(
                "When the cell began, the model of an earlier cell was still in memory, and a rank has no room for two "
                "of them; delete it first, for example with `del model, optimizer`. "
                + advice(needs, context.size(), "That model", context.backend())
            )

    def prepare(
        self, model: nn.Module, optimizer: Any, shape: MeshShape, wrap: Sequence[type[nn.Module]] | None = None
    ) -> None:
        """Announce on which mesh a model fits, if it does not fit on this one."""
        if optimizer is None or not reporter.current().run or any(map(nn.parameter.is_lazy, model.parameters())):
            return
        own = model.module if isinstance(model, DistributedDataParallel) else model
        self._needs.pop(own, None)
        if self._needs:
            # A sharded model and its hooks refer to each other, so one that was replaced would stay in memory.
            gc.collect()
        needs = needs_of(model, optimizer, wrap)
        if not needs.fits(shape):
            _send(advice(needs, context.size(), "The model", context.backend()))
        elif self._warned and not self._needs:
            _send("")
        self._needs[own] = needs


@functools.cache
def announcer() -> Announcer:
    """Return the `Announcer` of this process."""
    return Announcer()


def _send(text: str) -> None:
    reporter.send({"kind": Kind.FIT, "rank": context.rank(), "time": time.time(), "text": text})


def rank_memory() -> int:
    """Return this rank's share of the memory of its device, in bytes."""
    device = context.device()
    if device.type == "cuda":
        sharing = math.ceil(context.local_size() / torch.cuda.device_count())
        return int(torch.cuda.get_device_properties(device).total_memory) // sharing
    return machine.share_of_memory(context.local_size(), context.machine_size())


def _copies(optimizer: Any) -> int:
    """Return how many values of its size an optimizer keeps for each parameter."""
    if isinstance(optimizer, torch.optim.SGD):
        return int(any(group["momentum"] for group in optimizer.param_groups))
    return ADAM_COPIES


def _step_copies(optimizer: Any) -> int:
    """Return how many values an optimizer computes for each parameter before it changes the first one.

    On GPUs, torch's optimizers compute all parameters together by default. Source: the argument ``foreach`` of
    ``torch.optim.Adam``.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    each = any(group.get("fused") or group.get("foreach") is False for group in groups)
    return int(context.device().type == "cuda" and not each and not isinstance(optimizer, torch.optim.SGD))


def _gathered(model: nn.Module, wrap: Sequence[type[nn.Module]] | None) -> int:
    """Return the bytes of the units that a rank gathers at a time. Parameters outside of units stay gathered."""
    sizes: list[int] = []
    seen: set[int] = set()
    for unit in (*units(model, wrap), model):
        own = [parameter for parameter in unit.parameters() if id(parameter) not in seen]
        seen.update(map(id, own))
        sizes.append(memory.size_of(own))
    *blocks, rest = sizes
    return max(rest + UNIT_COPIES * max(blocks, default=0), UNIT_COPIES * rest)


def _process_bytes() -> int:
    """Return what this process needs without models. A model of an earlier cell is usually replaced by the next one."""
    if context.device().type == "cuda":
        return gpus.CONTEXT_BYTES
    return max(LEAST_PROCESS_BYTES, memory.resident_bytes() - memory.bytes_of_all_models())
