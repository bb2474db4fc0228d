"""The shape of a mesh: how many ranks each of its dimensions has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.world import membership
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

    def place(self) -> tuple[int, int]:
        """Return which share of each batch this rank gets, and the number of shares."""
        return context.rank() // self.tensor, self.data * self.shard

    def __str__(self) -> str:
        return str({name: size for name, size in zip(DIMENSIONS, self.sizes, strict=True) if size > 1} or {"data": 1})


def parsed(mesh: Any) -> MeshShape:
    """Return the shape that the argument ``mesh`` of ``fd.prepare`` describes, in the current world.

    One dimension may be -1, which stands for all ranks that the others leave.

    Raises:
        UsageError: the shape is not valid or has another number of ranks than the world, or the world has no meshes.
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
    _refuse_worlds_without_meshes()
    return _multiplied(dict(mesh))


def _refuse_worlds_without_meshes() -> None:
    if context.backend() == "horovod":
        raise UsageError(
            "fd.prepare: a mesh needs the backend torch, and the ranks have horovod; use %%distributed_train --backend "
            "torch, or start the cluster with --backend torch."
        )
    if membership.current().active:
        raise UsageError(
            "fd.prepare: an elastic run changes its number of ranks, which a mesh cannot follow; leave out --elastic, "
            "or the mesh."
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
