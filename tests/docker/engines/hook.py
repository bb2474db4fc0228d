#!/usr/bin/env python3
"""A stand-in for NVIDIA's hook, which adds the GPUs in NVIDIA_VISIBLE_DEVICES to a container.

The engine runs `nvidia-container-runtime-hook prestart` after it has made the container's mounts and before it changes
the root directory. The hook reads the container's state as JSON from its standard input. It needs only Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

GPUS = ("0", "1")
MAJOR = 195
"""The major number of NVIDIA's device nodes. Opening such a node fails with ENXIO in a container that may use it, and
with EPERM in other containers."""


def main() -> None:
    """Handle one container.

    An unknown GPU prevents the container's start, with the same error message as NVIDIA's hook.
    """
    state = json.load(sys.stdin)
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text())
    environment = dict(pair.partition("=")[::2] for pair in config["process"]["env"])
    wanted = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    if wanted in {"", "none", "void"}:
        return
    ids = GPUS if wanted == "all" else wanted.split(",")
    for each in ids:
        if each not in GPUS:
            sys.exit(f"nvidia-container-cli: device error: {each}: unknown device")
        _give(state["pid"], bundle / config["root"]["path"], each)


def _give(pid: int, root: Path, gpu: str) -> None:
    _admit(pid, gpu)
    node = ["mknod", "--mode=666", f"{root}/dev/nvidia{gpu}", "c", str(MAJOR), gpu]
    subprocess.run(["nsenter", f"--target={pid}", "--mount", *node], check=True)


def _admit(pid: int, gpu: str) -> None:
    """Allow access to the device node if the host uses cgroup v1.

    With cgroup v2, opening the node remains forbidden.
    """
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "devices":
            allowed = Path(f"/sys/fs/cgroup/devices{group}/devices.allow")
            allowed.write_text(f"c {MAJOR}:{gpu} rw")


if __name__ == "__main__" and sys.argv[1:] == ["prestart"]:
    main()
