"""Check whether the engine can enforce the size of homes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.doctor.finding import Finding, ok, warning
from hub.doctor.machine import ENGINE_FOLDER

if TYPE_CHECKING:
    from hub.doctor.deployment import Deployment

MOUNTS = Path("/proc/self/mountinfo")
PROJECT_QUOTAS = {"pquota", "prjquota"}
"""The mount options of file systems whose project quotas are enforced."""


def check_homes(deployment: Deployment, info: dict[str, Any]) -> Finding:
    """Compare FARANDOLE_HOME_SIZE with the mount options of the engine's disk."""
    size = deployment.get("FARANDOLE_HOME_SIZE")
    if not size:
        return ok("homes", "no limit on their size; FARANDOLE_HOME_SIZE sets one")
    if deployment.get("FARANDOLE_DEPLOYMENT") == "swarm":
        return ok("homes", f"{size}; the homes of a swarm are measured, and full ones start no new runs")
    return judge_homes(size, str(info.get("DockerRootDir") or ENGINE_FOLDER), MOUNTS.read_text(encoding="utf-8"))


def judge_homes(size: str, folder: str, mounts: str) -> Finding:
    """Return a finding about homes in a ``folder``, given the content of ``/proc/self/mountinfo``."""
    kind, options = mount_of(folder, mounts)
    if options & PROJECT_QUOTAS:
        return ok("homes", f"{size}; the engine enforces it for new homes, because {folder} has project quotas")
    return warning(
        "homes",
        f"{size}, which the engine cannot enforce: {folder} is on {kind} without project quotas. Homes are measured, "
        "and full ones start no new runs, but a program can still fill the disk.",
        f"Mount the disk of {folder} as XFS with the option pquota, before users have homes: docs/how-to/quotas.md\n"
        "Or keep the hub's state on another disk: FARANDOLE_STATE_FOLDER.",
    )


def mount_of(folder: str, mounts: str) -> tuple[str, set[str]]:
    """Return the type and the options of the file system that has a folder."""
    found: tuple[str, str, set[str]] = ("", "an unknown file system", set())
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        place, options = before.split()[4:6]
        kind, _, more = after.split()[:3]
        # Of several mounts at the same place, the last one is visible.
        if Path(folder).is_relative_to(place) and len(place) >= len(found[0]):
            found = place, kind, {*options.split(","), *more.split(",")}
    return found[1:]
