"""What a profile asks of Kubernetes: the table `[profile.kubernetes]` of profiles.toml, checked when read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from spawner_config.kubernetes.settings import LABEL_KEY, LABEL_VALUE
from spawner_config.profiles.profiles import MEMORY, ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spawner_config.profiles.profiles import Profile

NODE = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
PLACES = ("anywhere", "together", "apart")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
TAINT = re.compile(
    rf"(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9._-]+)(=(?P<value>[A-Za-z0-9._-]+))?(:(?P<effect>{'|'.join(EFFECTS)}))?"
)
SHARED_MEMORY = "1G"


@dataclass(frozen=True, kw_only=True)
class PodNeeds:
    """Where a profile's pods run, with which priority, and what they are sure to have.

    ``node_selector`` are labels that a node must have, ``prefer`` labels of which a node should have many,
    ``tolerations`` the taints that it may have, as ``key=value:NoSchedule``; ``workers`` says whether those of a
    cluster should be near each other. ``cpu_request`` and ``memory_request`` are what the scheduler sets apart: as much
    as the limits where they are None. ``shared_memory`` is the size of /dev/shm, and counts as the server's memory.
    ``queue`` is one of Kueue's. Raises `ProfileError`.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    prefer: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    workers: str = PLACES[0]
    priority: str | None = None
    queue: str | None = None
    cpu_request: float | None = None
    memory_request: str | None = None
    shared_memory: str = SHARED_MEMORY

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for key in ("node_selector", "prefer"):
            _require(_are_labels(getattr(self, key)), key, 'a table of labels, as { "gpu-class" = "a100" }')
        taints = isinstance(self.tolerations, tuple | list) and all(_is_taint(text) for text in self.tolerations)
        _require(taints, "tolerations", "a list of taints, as ['nvidia.com/gpu', 'team=vision:NoSchedule']")
        _require(self.workers in PLACES, "workers", f"one of: {', '.join(PLACES)}")
        for key in ("priority", "queue"):
            _require(_is_name_or_none(getattr(self, key)), key, "a name of small letters, digits, '-'")
        cpus = self.cpu_request
        number = isinstance(cpus, int | float) and not isinstance(cpus, bool) and cpus > 0
        _require(cpus is None or number, "cpu_request", "a number above 0")
        _require(
            self.memory_request is None or _is_memory(self.memory_request), "memory_request", "text as '512M' or '4G'"
        )
        # It goes to Kubernetes as it is, where K means something else.
        shared = _is_memory(self.shared_memory) and not self.shared_memory.endswith("K")
        _require(shared, "shared_memory", "text as '512M' or '4G'")

    @classmethod
    def of(cls, profile: Profile) -> PodNeeds:
        """Return what a profile's table says; raises `ProfileError` that names the profile."""
        where = f"kubernetes of profile {profile.name!r}"
        known = [item.name for item in fields(cls)]
        for key in profile.kubernetes:
            if key not in known:
                raise ProfileError(f"{where} has an unknown key {key!r}. Known keys: {', '.join(known)}.")
        try:
            return cls(**profile.kubernetes)
        except ProfileError as exc:
            raise ProfileError(f"{where}: {exc}") from exc

    def tolerated(self) -> list[dict[str, Any]]:
        """Return the tolerations as Kubernetes takes them."""
        return [_toleration(text) for text in self.tolerations]

    def preferred(self) -> list[dict[str, Any]]:
        """Return the preferred labels as Kubernetes takes them; the first counts most."""
        terms = enumerate(self.prefer.items())
        return [
            {
                "weight": max(1, 100 - 20 * place),
                "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
            }
            for place, (key, value) in terms
        ]

    def near(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the affinity to pods with these labels, where workers are to be near each other."""
        return _weighted(labels, {NODE: 100, ZONE: 50}.items()) if self.workers == "together" else []

    def far(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the affinity against pods with these labels, where workers are to be apart."""
        return _weighted(labels, {NODE: 100}.items()) if self.workers == "apart" else []


def _weighted(labels: Mapping[str, str], places: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"weight": weight, "podAffinityTerm": {"topologyKey": place, "labelSelector": {"matchLabels": dict(labels)}}}
        for place, weight in places
    ]


def _toleration(text: str) -> dict[str, Any]:
    found = TAINT.fullmatch(text)
    assert found is not None
    value, effect = found["value"], found["effect"]
    toleration = {"key": found["key"], "operator": "Equal" if value else "Exists"}
    return {**toleration, **({"value": value} if value else {}), **({"effect": effect} if effect else {})}


def _require(fits: object, key: str, wanted: str) -> None:
    if not fits:
        raise ProfileError(f"{key} must be {wanted}.")


def _are_labels(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(text)
        for key, text in value.items()
    )


def _is_taint(value: object) -> bool:
    return isinstance(value, str) and TAINT.fullmatch(value) is not None


def _is_name_or_none(value: object) -> bool:
    return value is None or (isinstance(value, str) and NAME.fullmatch(value) is not None)


def _is_memory(value: object) -> bool:
    return isinstance(value, str) and MEMORY.fullmatch(value) is not None
