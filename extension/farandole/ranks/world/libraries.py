"""Keeps libraries that train over `torch.distributed` in step with the rank's world."""

from __future__ import annotations

import functools
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

from farandole.ranks import context, run
from farandole.ranks.world import one_device

NAMES = {
    "accelerate": "accelerate, which the Trainer of transformers uses too,",
    "lightning": "lightning",
    "pytorch_lightning": "pytorch_lightning",
}
"""Libraries that need `torch.distributed`, mapped to the beginning of the notice for the user."""
LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}


class Libraries(MetaPathFinder):
    """Notifies the user of libraries that cannot train on the backend, and resets what they remember of a world."""

    def __init__(self) -> None:
        self._world: tuple[str, int, int] | None = None
        self._noticed: set[str] = set()

    def watch_imports(self) -> None:
        """Make Python call `find_spec` before it imports a module for the first time."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object = None, _target: object = None) -> ModuleSpec | None:
        """Give notice of a library that cannot train on the backend. Return None for the other finders to find it."""
        if fullname in NAMES:
            self._notice(fullname)
        return one_device.spec_of(fullname, path)

    def notice_imported(self) -> None:
        """Give notice of libraries that an earlier cell has imported, for example with another backend."""
        for name in NAMES:
            if name in sys.modules:
                self._notice(name)

    def _notice(self, name: str) -> None:
        if context.backend() == "horovod" and context.rank() == 0 and context.size() > 1 and name not in self._noticed:
            self._noticed.add(name)
            run.notice(
                f"{NAMES[name]} needs torch.distributed: on backend horovod each rank trains alone. To train on all "
                "ranks, use `%%distributed_train --backend torch`, or start the cluster with `--backend torch`."
            )

    def adapt(self) -> None:
        """Make libraries forget the former world if the backend, the rank or the size has changed."""
        world = (context.backend(), context.rank(), context.size())
        if world != self._world:
            self._world = world
            self._noticed.clear()
            _reset_accelerate()
            _update_lightning()


@functools.cache
def current() -> Libraries:
    """Return the `Libraries` of this process."""
    return Libraries()


def share_gpus(gpus: int) -> None:
    """Set LOCAL_RANK to the number of this rank's GPU on a worker with fewer GPUs (``gpus``) than ranks.

    Libraries use the GPU with the number LOCAL_RANK. Otherwise, rank 1 of a worker with one GPU would use GPU 1.
    """
    os.environ["LOCAL_RANK"] = str(context.local_rank() % gpus)
    os.environ["LOCAL_WORLD_SIZE"] = str(gpus)


def _reset_accelerate() -> None:
    """Make the next ``Accelerator()`` look at the world, instead of at what the first one in this process found."""
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()


def _update_lightning() -> None:
    """Repeat Lightning's check for an interactive console, whose result each of its modules keeps from its import."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in LIGHTNING and "_IS_INTERACTIVE" in vars(module):
            vars(module)["_IS_INTERACTIVE"] = hasattr(sys, "ps1")
