"""The model of the table `[profile.kubernetes]` in profiles.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from spawner_config.kubernetes.settings import LABEL_KEY, LABEL_VALUE, OBJECT, SIZE, SIZE_WANTED
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Table, naming

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spawner_config.profiles.profiles import Profile

NODE = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OBJECT_WANTED = "a name of lower-case letters, digits and '-'"
TAINT = (
    r"^(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9._-]+)(=(?P<value>[A-Za-z0-9._-]+))?"
    rf"(:(?P<effect>{'|'.join(EFFECTS)}))?$"
)
LABELS_WANTED = 'a table of labels, such as { "gpu-class" = "a100" }'
Labels = dict[Annotated[str, Field(pattern=LABEL_KEY)], Annotated[str, Field(pattern=LABEL_VALUE)]]


class PodNeeds(Table):
    """The nodes, the priority and the resources for a profile's pods; raises `ProfileError` for invalid values.

    - ``node_selector``: labels that a node must have
    - ``prefer``: labels that a node should have, as many of them as possible
    - ``tolerations``: taints that a node may have, such as ``key=value:NoSchedule``
    - ``workers``: whether the workers of a cluster should run near each other, apart, or anywhere
    - ``priority``: the PriorityClass of the workers
    - ``queue``: the queue of Kueue in which the pods wait
    - ``cpu_request``, ``memory_request``: the resources that the scheduler reserves; None means the limits, or 0.1 CPUs
      if the CPUs are not limited
    - ``scratch``: how much a server may write outside its volumes; None means FARANDOLE_SCRATCH
    - ``shared_memory``: the size of /dev/shm, which counts towards the server's memory
    """

    node_selector: Labels = Field({}, description=LABELS_WANTED)
    prefer: Labels = Field({}, description=LABELS_WANTED)
    tolerations: Sequence[Annotated[str, Field(pattern=TAINT)]] = Field(
        (), description="a list of taints, such as ['nvidia.com/gpu', 'team=vision:NoSchedule']"
    )
    workers: Literal["anywhere", "together", "apart"] = Field(
        "anywhere", description="one of: anywhere, together, apart"
    )
    priority: str | None = Field(None, pattern=OBJECT, description=OBJECT_WANTED)
    queue: str | None = Field(None, pattern=OBJECT, description=OBJECT_WANTED)
    cpu_request: float | None = Field(None, gt=0, description="a number above 0")
    memory_request: str | None = Field(None, pattern=MEMORY, description=MEMORY_EXAMPLE)
    scratch: str | None = Field(None, pattern=SIZE, description=SIZE_WANTED)
    # Exclude the unit K, because Kubernetes reads this value itself and expects a lower-case k.
    shared_memory: str = Field("1G", pattern=MEMORY.replace("K", ""), description=MEMORY_EXAMPLE)

    @classmethod
    def of(cls, profile: Profile) -> PodNeeds:
        """Return the checked ``[profile.kubernetes]`` table of a profile.

        If the table is invalid, this method raises a `ProfileError` that names the profile.
        """
        with naming(f"kubernetes of profile {profile.name!r}"):
            return cls(**profile.kubernetes)

    def tolerated(self) -> list[dict[str, Any]]:
        """Return the tolerations in the format of a pod specification."""
        return [_toleration(text) for text in self.tolerations]

    def preferred(self) -> list[dict[str, Any]]:
        """Return the preferred labels as node affinities; the first label has the highest weight."""
        return [
            {
                "weight": max(1, 100 - 20 * place),
                "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
            }
            for place, (key, value) in enumerate(self.prefer.items())
        ]

    def near(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the affinity to pods with these labels, if workers should run near each other."""
        return _weighted(labels, {NODE: 100, ZONE: 50}.items()) if self.workers == "together" else []

    def far(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the anti-affinity to pods with these labels, if workers should run apart."""
        return _weighted(labels, {NODE: 100}.items()) if self.workers == "apart" else []


def _weighted(labels: Mapping[str, str], places: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"weight": weight, "podAffinityTerm": {"topologyKey": place, "labelSelector": {"matchLabels": dict(labels)}}}
        for place, weight in places
    ]


def _toleration(text: str) -> dict[str, Any]:
    found = re.fullmatch(TAINT, text)
    assert found is not None
    operator = {"key": found["key"], "operator": "Equal" if found["value"] else "Exists"}
    given = {"value": found["value"], "effect": found["effect"]}
    return {**operator, **{key: value for key, value in given.items() if value}}
