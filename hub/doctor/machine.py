"""Check the machine's free disk space, memory, cores and clock."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.doctor.finding import Finding, fault, ok, warning

if TYPE_CHECKING:
    from hub.doctor.deployment import Deployment
    from hub.doctor.engine import Engine

GIB = 2**30
ENGINE_FOLDER = "/var/lib/docker"
IMAGE_BYTES = {"hub": 0.43e9, "notebook": 1.3e9, "cuda": 5.3e9, "serving": 0.45e9, "serving-torch": 1.0e9}
"""The size of each image in bytes. During a pull, compressed layers need space too, which `PULLING` accounts for."""
PULLING = 1.5
LEAST_FREE = 1.0 * GIB
HOMES = 10.0 * GIB
"""A rough estimate, in bytes, of the space that the homes and data of a small group need."""
LEAST_MEMORY, GOOD_MEMORY = 1.7 * GIB, 3.5 * GIB
"""Bytes of memory. These limits are below 2 and 4 GiB because machines of these sizes report slightly less."""
GOOD_CORES = 2
LARGEST_ERROR = 16_000_000
"""The largest clock error that the kernel reports, in microseconds. If nothing synchronises the clock, the reported
error grows until it reaches this value."""


def check_disk(deployment: Deployment, engine: Engine, info: dict[str, Any]) -> Finding:
    """Compare the free disk space with the space that images and volumes still need."""
    root = Path(str(info.get("DockerRootDir") or ENGINE_FOLDER))
    try:
        free = shutil.disk_usage(root).free
    except OSError as exc:
        return warning(
            "disk",
            f"The engine keeps images and volumes in {root}, which cannot be examined ({exc.strerror}).",
            "Run this as root, on the machine that the engine runs on.",
        )
    missing = [kind for kind, name in deployment.images.items() if engine.get(f"/images/{name}/json") is None]
    return judge_disk(str(root), free, missing)


def judge_disk(root: str, free: float, missing: list[str]) -> Finding:
    """Check whether ``free`` bytes are enough, given that the ``missing`` kinds of image must still be pulled."""
    images = PULLING * sum(IMAGE_BYTES[kind] for kind in missing)
    need = f"; the images for {', '.join(missing)} need {images / GIB:.1f} GiB" if missing else ""
    found = f"{free / GIB:.1f} GiB free in {root}{need}"
    remedy = "Free some space (docker image prune), or move the engine's folder to a larger disk: data-root in "
    remedy += "/etc/docker/daemon.json"
    if free < images + LEAST_FREE:
        return fault("disk", found, remedy)
    if free < images + HOMES:
        return warning("disk", f"{found}; users' files need {HOMES / GIB:.0f} GiB more", remedy)
    return ok("disk", found)


def check_state(deployment: Deployment, engine: Engine, info: dict[str, Any]) -> Finding:
    """Check whether the hub's state is on the same disk as the engine's folder, which holds users' volumes."""
    if deployment.get("FARANDOLE_DATABASE") and "postgres" not in deployment.profiles:
        return ok("state", "the hub's database is not on this machine")
    users = Path(str(info.get("DockerRootDir") or ENGINE_FOLDER))
    folder = deployment.get("FARANDOLE_STATE_FOLDER")
    name = f"{deployment.name}-state"
    volume = engine.get(f"/volumes/{name}") or {}
    state = Path(folder or (volume.get("Options") or {}).get("device") or volume.get("Mountpoint") or users)
    return judge_state(str(users), _disk(users), folder or f"the volume {name}", _disk(state) or _disk(users))


def judge_state(users: str, users_disk: int | None, state: str, state_disk: int | None) -> Finding:
    """Compare the device numbers of the two disks; a number is None if its folder cannot be examined."""
    if users_disk is None:
        return warning("state", f"{users}, where users' volumes are, cannot be examined.", "Run this as root.")
    if state_disk != users_disk:
        return ok("state", f"{state} is not on the disk of users' volumes")
    return warning(
        "state",
        f"{state} is on the disk of users' volumes: a user who fills it stops the hub's database.",
        "docker compose down; copy the state to a folder on another disk, with chown -R 1000:1000; set "
        "FARANDOLE_STATE_FOLDER to it in .env; docker compose up -d\n"
        "Or give the engine another disk: data-root in /etc/docker/daemon.json.\n"
        "Or use a database on another machine: FARANDOLE_DATABASE.",
    )


def _disk(path: Path) -> int | None:
    """Return the device number of a path, or of its nearest existing parent; None if this user has no access."""
    try:
        return next(each.stat().st_dev for each in (path, *path.parents) if each.exists())
    except PermissionError:
        return None


def check_memory(info: dict[str, Any]) -> Finding:
    """Check whether the memory and the cores that the engine reports are enough."""
    memory, cores = int(info.get("MemTotal") or 0), int(info.get("NCPU") or 0)
    found = f"{memory / GIB:.1f} GiB of memory, {cores} cores"
    if memory < LEAST_MEMORY:
        return fault("memory", found, "A notebook with two workers needs 2 GiB; 4 GiB or more are recommended.")
    if memory < GOOD_MEMORY or cores < GOOD_CORES:
        return warning(
            "memory", found, "This is enough for one user with two workers. Set small limits in profiles.toml."
        )
    return ok("memory", found)


def check_clock() -> Finding:
    """Check whether the machine's clock is synchronised."""
    return judge_clock(_clock_error())


def judge_clock(microseconds: int | None) -> Finding:
    """Return a finding about the clock's maximum error, which is None if the kernel does not report it."""
    if microseconds is None:
        return ok("clock", "the kernel does not report whether it is synchronised")
    if microseconds >= LARGEST_ERROR:
        return warning(
            "clock",
            "The clock of this machine is not synchronised: certificates, logins and logs will fail or disagree.",
            "sudo timedatectl set-ntp true ; or install chrony.",
        )
    return ok("clock", f"synchronised, to {microseconds / 1e6:.1f} s or better")


class _Timex(ctypes.Structure):
    """The first fields of the kernel's struct timex, padded to the size of the struct."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    )


def _clock_error() -> int | None:
    timex = _Timex()
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None or adjtimex(ctypes.byref(timex)) < 0:
        return None
    return int(timex.maxerror)
