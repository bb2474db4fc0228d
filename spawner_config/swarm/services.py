"""Creates the specification of a server's service, which has a single task that is never restarted."""

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
"""The resource name of GPUs in `node-generic-resources` in the engine's daemon.json."""
GPU_LABEL = "farandole.gpu"
"""The node label that contains the class of the node's GPUs."""
SHARED_MEMORY_BYTES = 1 << 30
LOGS = {"max-size": "20m", "max-file": "2"}


@dataclass(frozen=True, kw_only=True)
class NodeNeeds:
    """The requirements for the node of a server: labels, and ``gpus`` GPUs of a class; None means any class.

    ``data`` are labels that the node should have, each for a version of a data set that the server mounts.
    """

    gpus: int = 0
    gpu_class: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the node must have."""
        return {**self.node_labels, **({GPU_LABEL: self.gpu_class} if self.gpu_class else {})}

    @property
    def constraints(self) -> list[str]:
        """The required labels as placement constraints."""
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
    """Return the task of a server.

    ``memory`` and ``reserved_memory`` are in bytes. ``constraints`` are added to the constraints of ``needs``.
    """
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
        # Do not restart the task, because a new task would lose the state, and users should see that their server has
        # ended.
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
        # The hub checks servers itself. With a health check, the swarm would end a server that is too busy to answer.
        healthcheck={"Test": ["NONE"]},
    )


def _shared_memory() -> dict[str, Any]:
    """Return a tmpfs mount that replaces `--shm-size`; data loader workers and NCCL exchange tensors through it."""
    return {"Type": "tmpfs", "Target": "/dev/shm", "TmpfsOptions": {"SizeBytes": SHARED_MEMORY_BYTES}}
