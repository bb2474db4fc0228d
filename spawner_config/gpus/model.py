"""The GPUs of a machine, and the requests of servers for GPUs.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from spawner_config.roles import is_worker
from spawner_config.settings import ProfileError

Key: TypeAlias = tuple[str, str]
"""Identifies a server by the name of its user and its own name."""

GPU_ID = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z-]+")
GPU_CLASS = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")
EXAMPLE = "0:rtx-2080-ti,1:rtx-2080-ti"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of this machine.

    ``id`` is the index or UUID by which the engine identifies the GPU; ``gpu_class`` is a short name that the
    administrator chooses. Raises `ProfileError` for invalid values.
    """

    id: str
    gpu_class: str

    def __post_init__(self) -> None:
        """Raise `ProfileError` for invalid values."""
        if not isinstance(self.id, str) or not GPU_ID.fullmatch(self.id):
            raise ProfileError("The id of a GPU must be text such as '0' or 'GPU-<uuid>'.")
        if not isinstance(self.gpu_class, str) or not GPU_CLASS.fullmatch(self.gpu_class):
            raise ProfileError("The class of a GPU must be lower-case letters, digits and '-', such as 'rtx-2080-ti'.")


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in FARANDOLE_GPUS, such as ``0:rtx-2080-ti,1:rtx-2080-ti``; raises `ProfileError`."""
    pairs = [item.strip().partition(":") for item in text.split(",") if item.strip()]
    try:
        return distinct(tuple(Gpu(id=gpu_id, gpu_class=gpu_class) for gpu_id, _, gpu_class in pairs))
    except ProfileError as exc:
        raise ProfileError(f"FARANDOLE_GPUS is {text!r}. It must look like '{EXAMPLE}'. {exc}") from exc


def distinct(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return ``gpus`` unchanged; raises `ProfileError` if two of them have the same id."""
    if len({gpu.id for gpu in gpus}) < len(gpus):
        raise ProfileError("The id of a GPU must be different for each GPU.")
    return gpus


@dataclass(frozen=True, kw_only=True)
class GpuRequest:
    """A server's request for ``count`` GPUs of a class, or of any class if ``gpu_class`` is None.

    ``together`` is the number of workers that are started together, and that get their GPUs at the same time. If each
    worker got its GPUs separately, two clusters could each hold half of the GPUs that they need and wait for each other
    forever.
    """

    user: str
    server: str
    count: int
    gpu_class: str | None = None
    together: int = 1

    @property
    def key(self) -> Key:
        """The key of the server that requests the GPUs."""
        return self.user, self.server

    @property
    def cluster(self) -> Key:
        """The key of the servers that get GPUs together: the worker's cluster, or the server alone."""
        return (self.user, self.server.rpartition("-w")[0] + "-w") if is_worker(self.server) else self.key
