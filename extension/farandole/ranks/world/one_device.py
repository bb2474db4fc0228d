"""Corrects libraries that count one device or one process on a rank without a GPU, even under their own launchers.

The corrections are applied when Python imports the libraries' modules, because ranks import no library in advance.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from farandole.ranks import context

USE_CPU = "ACCELERATE_USE_CPU"


def spec_of(name: str, path: Any) -> ModuleSpec | None:
    """Return the spec of a module that is corrected after its import. Return None for all other modules."""
    correct = CORRECTIONS.get(name)
    spec = PathFinder.find_spec(name, path) if correct is not None else None
    if correct is None or spec is None or spec.loader is None:
        return None
    execute = spec.loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        correct(module)

    vars(spec.loader)["exec_module"] = exec_module
    return spec


def _count_ranks(module: Any) -> None:
    """Make ``devices="auto"`` of Lightning count the ranks of the node, which its CPU accelerator takes for one."""
    count = module.CPUAccelerator.auto_device_count

    def auto_device_count() -> int:
        return context.local_size() if context.backend() == "torch" else int(count())

    module.CPUAccelerator.auto_device_count = staticmethod(auto_device_count)


def _use_cpu(module: Any) -> None:
    """Make Accelerate's ``PartialState()`` respect the variable that only ``Accelerator()`` reads."""
    create = module.PartialState.__init__

    def create_on_cpu(self: Any, cpu: bool = False, **options: Any) -> None:
        create(self, cpu or os.environ.get(USE_CPU) == "true", **options)

    module.PartialState.__init__ = create_on_cpu


CORRECTIONS: dict[str, Callable[[Any], None]] = {
    "accelerate.state": _use_cpu,
    "lightning.fabric.accelerators.cpu": _count_ranks,
    "lightning.pytorch.accelerators.cpu": _count_ranks,
    "lightning_fabric.accelerators.cpu": _count_ranks,
    "pytorch_lightning.accelerators.cpu": _count_ranks,
}
