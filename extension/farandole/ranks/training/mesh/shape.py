"""The shape of a mesh: how many ranks each of its dimensions has."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training.shard import BatchPlace, Placement, place_in_world
from farandole.ranks.world import world
from farandole.suggestions import did_you_mean

DIMENSIONS = ("data", "shard", "tensor")
"""All dimensions, the outermost first. Ranks that differ only in the last one have neighbouring numbers."""


@dataclass(frozen=True, kw_only=True)
class MeshShape:
    """The number of ranks in each dimension of a mesh. Their product is the number of ranks.

    - ``data``: groups of ranks, each of which holds the whole model.
    - ``shard``: ranks that share the parameters, gradients and optimizer state of a group, and compute different
      samples.
    - ``tensor``: ranks that share the computation of each layer, and compute the same samples.
    """

    data: int = 1
    shard: int = 1
    tensor: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of ranks in each dimension, in the order of `DIMENSIONS`."""
        return (self.data, self.shard, self.tensor)

    @property
    def ranks(self) -> int:
        """The number of ranks of the mesh."""
        return math.prod(self.sizes)

    def place(self) -> BatchPlace:
        """Return the place of this rank. Ranks along ``tensor`` have the same place."""
        return BatchPlace(
            share=context.rank() // self.tensor,
            shares=self.data * self.shard,
            # Only ranks along `shard` gather parameters from others that have another share.
            together=self.shard > 1,
            copied=self.tensor > 1,
        )

    def __str__(self) -> str:
        return str({name: size for name, size in zip(DIMENSIONS, self.sizes, strict=True) if size > 1} or {"data": 1})


class CurrentPlacement:
    """The placement for the model that was prepared last, for loaders that are prepared without a model and a mesh."""

    def __init__(self) -> None:
        self._placement: Placement = place_in_world
        self._world = 0

    def set(self, placement: Placement) -> None:
        """Set the placement in the current world."""
        self._placement, self._world = placement, world.current().times_left

    def place(self) -> BatchPlace:
        """Return this rank's place, which is that in the world if the ranks have left the world of the model."""
        return self._placement() if self._world == world.current().times_left else place_in_world()


@functools.cache
def current() -> CurrentPlacement:
    """Return the `CurrentPlacement` of this process."""
    return CurrentPlacement()


def parsed(mesh: Any) -> MeshShape:
    """Return the shape that the argument ``mesh`` of ``fd.prepare`` describes, in the current world.

    One dimension may be -1, which stands for all ranks that the others leave.

    Raises:
        UsageError: the shape is not valid or has another number of ranks than the world, or the backend has no meshes.
    """
    if not isinstance(mesh, Mapping):
        raise UsageError(f'fd.prepare: mesh is {mesh!r}; it must be a dict, such as mesh={{"shard": 4}}.')
    if unknown := [name for name in mesh if name not in DIMENSIONS]:
        raise UsageError(
            f"fd.prepare: the mesh has no dimension {unknown[0]!r}; the dimensions are {', '.join(DIMENSIONS)}."
            f"{did_you_mean(str(unknown[0]), DIMENSIONS)}"
        )
    for name, size in mesh.items():
        if type(size) is not int or (size < 1 and size != -1):
            raise UsageError(
                f"fd.prepare: the mesh has {name}={size!r}; it must be a number of ranks, or -1 for the ranks that the "
                "other dimensions leave."
            )
    if list(mesh.values()).count(-1) > 1:
        raise UsageError("fd.prepare: only one dimension of the mesh may be -1.")
    _refuse_other_backends()
    return _multiplied(dict(mesh))


def _refuse_other_backends() -> None:
    backend = context.backend()
    if backend == "horovod" or (backend == "none" and context.size() > 1):
        raise UsageError(
            f"fd.prepare: a mesh needs the backend torch, and that of the ranks is {backend}; use %%distributed_train "
            "--backend torch, or start the cluster with --backend torch."
        )


def _multiplied(mesh: dict[str, int]) -> MeshShape:
    size, known = context.size(), math.prod(size for size in mesh.values() if size > 0)
    if rest := [name for name, ranks in mesh.items() if ranks == -1]:
        mesh[rest[0]] = max(size // known, 1)
    if math.prod(mesh.values()) != size:
        raise UsageError(
            f"fd.prepare: the mesh {mesh} has {math.prod(mesh.values())} ranks, and there "
            f"{'is 1' if size == 1 else f'are {size}'}; change the mesh, for example to {{'shard': {size}}}, or the "
            "number of ranks with %cluster scale or --ranks."
        )
    return MeshShape(**mesh)
