"""What a server is as a service of a swarm: one task that is never started again, limited as a container would be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from docker.types import ContainerSpec, DriverConfig, Placement, Resources, RestartPolicy, TaskTemplate

from spawner_config.containers.spawner import PROCESSES, STOP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docker.types import Mount

NANOSECONDS = 1_000_000_000
GPU_RESOURCE = "GPU"
"""What nodes call their GPUs: `node-generic-resources` of an engine's daemon.json."""
GPU_LABEL = "farandole.gpu"
"""The label of a node: of which class its GPUs are."""
SHARED_MEMORY_BYTES = 1 << 30
LOGS = {"max-size": "20m", "max-file": "2"}


@dataclass(frozen=True, kw_only=True)
class NodeNeeds:
    """What a node must have for a server: labels, and ``gpus`` GPUs of a class (None: of any)."""

    gpus: int = 0
    gpu_class: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a node that may have the server."""
        return {**self.node_labels, **({GPU_LABEL: self.gpu_class} if self.gpu_class else {})}

    @property
    def constraints(self) -> list[str]:
        """The same in a swarm's words."""
        return [f"node.labels.{key}=={value}" for key, value in self.labels.items()]


def task_template(
    *,
    image: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    mounts: Sequence[Mount],
    network: str,
    needs: NodeNeeds,
    constraints: Sequence[str] = (),
    memory: int | None = None,
    reserved_memory: int | None = None,
    cpus: float | None = None,
) -> TaskTemplate:
    """Return a server's task; ``memory`` in bytes, ``constraints`` are more than ``needs`` says."""
    limits = Resources(
        mem_limit=memory,
        mem_reservation=reserved_memory,
        cpu_limit=int(cpus * NANOSECONDS) if cpus else None,
        generic_resources={GPU_RESOURCE: needs.gpus} if needs.gpus else None,
    )
    limits.setdefault("Limits", {})["Pids"] = PROCESSES
    return TaskTemplate(
        _container(image, command, environment, mounts),
        resources=limits,
        # Its user is told that it ended; a new one would have none of its variables.
        restart_policy=RestartPolicy(condition="none"),
        placement=Placement(constraints=[*needs.constraints, *constraints]),
        log_driver=DriverConfig("json-file", LOGS),
        networks=[network],
    )


def _container(
    image: str, command: Sequence[str], environment: Mapping[str, str], mounts: Sequence[Mount]
) -> ContainerSpec:
    return ContainerSpec(
        image,
        args=list(command),
        env=dict(environment),
        mounts=[*mounts, _shared_memory()],
        stop_grace_period=STOP_SECONDS * NANOSECONDS,
        cap_drop=["ALL"],
        privileges={"NoNewPrivileges": True},
        # The hub looks itself; a swarm would end a server that is too busy to answer.
        healthcheck={"Test": ["NONE"]},
    )


def _shared_memory() -> dict[str, Any]:
    """Return what `--shm-size` is to a service: loaders' workers and NCCL pass tensors through it."""
    return {
        "Type": "tmpfs",
        "Target": "/dev/shm",
        "TmpfsOptions": {"SizeBytes": SHARED_MEMORY_BYTES},
    }
