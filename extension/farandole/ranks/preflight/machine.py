"""Describes a rank's machine: host name, versions, memory, disks and load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
PACKAGES = ("torch", "horovod", "farandole")
UNLIMITED = 2**60
"""Lowest limit in bytes that means "unlimited" in cgroups version 1."""
MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""For each cgroups version, the files with the limit and the usage, and the line of memory.stat for the page cache."""


def describe() -> dict[str, Any]:
    """Return the machine's resources. Sizes are in bytes, and the load is the kernel's average over one minute."""
    free, total = memory()
    return {
        "host": socket.gethostname(),
        "versions": versions(),
        "memory": [free, total],
        "disks": disks(),
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count() or 1,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of `PACKAGES`, and those of CUDA and NCCL if there are GPUs."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["CUDA"] = str(torch.version.cuda)
        if torch.distributed.is_nccl_available():
            found["NCCL"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def memory(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> tuple[int, int]:
    """Return the free and total memory of the host in bytes, or less if a cgroup limits this process."""
    import psutil

    host = psutil.virtual_memory()
    limits = [(host.available, host.total), *cgroup_limits(cgroups, own, host.total)]
    return min(free for free, _ in limits), min(total for _, total in limits)


def share_of_memory(local_size: int, machine_size: int, cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the memory in bytes for each rank, if ranks share the host's memory or a limit of their worker evenly.

    ``local_size`` is the number of ranks on this worker, and ``machine_size`` the number of those on this host.
    """
    import psutil

    total = psutil.virtual_memory().total
    limits = [limit for _, limit in cgroup_limits(cgroups, own, total)]
    return int(min(total // machine_size, *(limit // local_size for limit in limits), total))


def cgroup_limits(cgroups: Path, own: Path, host_total: int) -> list[tuple[int, int]]:
    """Return (free, limit) in bytes for each cgroup of this process whose limit is below the host's memory.

    The page cache counts as free, because the kernel reclaims it first. Source: Linux,
    Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    found = []
    for folder, version in own_cgroups("memory", cgroups, own):
        limit_file, use_file, cache = MEMORY_FILES[version]
        try:
            limit = int((folder / limit_file).read_text())
            used = int((folder / use_file).read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):  # the file is missing or contains the word "max"
            continue
        if limit >= min(host_total, UNLIMITED):
            continue
        given_up = sum(int(line.split()[1]) for line in lines if line.split()[0] == cache)
        found.append((max(0, limit - used + given_up), limit))
    return found


def own_cgroups(controller: str, cgroups: Path, own: Path) -> list[tuple[Path, int]]:
    """Return (folder, version) for each cgroup of this process and its parents that may have the controller's files."""
    found = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            if number == "0":
                found.append((cgroups / folder, 2))
            elif controller in controllers.split(","):
                found.append((cgroups / controller / folder, 1))
    return found


def disks() -> dict[str, list[int]]:
    """Return the free and total bytes of the disks that hold the home folder and the temporary files."""
    found = {}
    for name, folder in (("home", Path.home()), ("temporary files", Path(tempfile.gettempdir()))):
        usage = shutil.disk_usage(folder)
        found[f"{name} ({folder})"] = [usage.free, usage.total]
    return found
