"""Keeps libraries that train over `torch.distributed` in step with the rank's world."""

from __future__ import annotations

import functools
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

from IPython.core.getipython import get_ipython

from farandole.ranks import context, run
from farandole.ranks.world import one_device

ALONE = "{} needs torch.distributed: on backend horovod each rank trains alone. To train on all ranks,"
NOTICES = {
    "accelerate": ALONE.format("accelerate, which the Trainer of transformers uses too,"),
    "lightning": ALONE.format("lightning"),
    "pytorch_lightning": ALONE.format("pytorch_lightning"),
    "lightning_fabric": ALONE.format("lightning_fabric"),
    "torchmetrics": (
        "torchmetrics needs torch.distributed: on backend horovod `compute()` covers the data of one rank only. To "
        "combine the data of all ranks,"
    ),
}
"""Libraries that need `torch.distributed`, mapped to the beginning of the notice for the user."""
LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}
IMPORTERS = {"lightning_fabric": {"pytorch_lightning"}, "torchmetrics": LIGHTNING}
"""Libraries that others import by themselves. After the notice of such an importer, theirs would say nothing new."""


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
        if fullname in NOTICES:
            self._notice(fullname)
        return one_device.spec_of(fullname, path)

    def watch_cells(self) -> None:
        """Make this process's kernel call `notice_imported` before each cell. Repeated calls do no harm."""
        shell = get_ipython()
        if shell is not None:
            shell.events.register("pre_run_cell", self.notice_imported)

    def notice_imported(self, _cell: object = None) -> None:
        """Give notice of libraries that an earlier cell has imported, for example with another backend."""
        for name in NOTICES:
            if name in sys.modules:
                self._notice(name)

    def _notice(self, name: str) -> None:
        known = {name} | IMPORTERS.get(name, set())
        alone = context.backend() == "horovod" and context.rank() == 0 and context.size() > 1
        if alone and self._noticed.isdisjoint(known):
            self._noticed.add(name)
            remedy = "use `%%distributed_train --backend torch`, or start the cluster with `--backend torch`."
            run.notice(f"{NOTICES[name]} {remedy}", warning=True)

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
