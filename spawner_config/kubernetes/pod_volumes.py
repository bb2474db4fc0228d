"""The volumes of a server's pod: the user's home, the shared volumes, and /dev/shm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spawner_config.profiles.profiles import Profile
    from spawner_config.shares import Shares

SHARED_MEMORY_PATH = "/dev/shm"


@dataclass(frozen=True, kw_only=True)
class VolumePlan:
    """Volumes and their mount points, in the format of a pod specification."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]

    @classmethod
    def of(
        cls, shares: Shares, spawner: Any, profile: Profile, *, shared_memory: str, hub: str, home: str
    ) -> VolumePlan:
        """Return the volumes of a server. Workers mount the home too, because it contains runs and checkpoints.

        An image that a user serves gets none of the user's files, because somebody else may have made it.
        """
        groups = {group.name for group in spawner.user.groups}
        claims = [(spawner.pvc_name, home, False)]
        claims += [(data.volume, data.path, True) for data in shares.data_of(profile.data)]
        claims += [(each.volume(hub), each.path, False) for each in shares.folders_of(spawner.user.name, groups)]
        if spawner.model_image:
            claims = []
        memory = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}}
        volumes = [
            {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}
            for number, (claim, _, read_only) in enumerate(claims)
        ]
        mounts = [
            {"name": f"claim-{number}", "mountPath": path, "readOnly": read_only}
            for number, (_, path, read_only) in enumerate(claims)
        ]
        return cls(volumes=[*volumes, memory], mounts=[*mounts, {"name": "shm", "mountPath": SHARED_MEMORY_PATH}])
