"""A second engine with two stand-in GPUs, which are NVIDIA's device nodes without a device behind them.

The engine supports both ways to request a GPU. With CDI, it reads the device nodes of each GPU from a file. With
NVIDIA's runtime, it runs the program nvidia-container-runtime-hook before a container starts.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from tests.docker.engines import hook, second
from tests.docker.engines.base_image import NAME as BASE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOOK = "nvidia-container-runtime-hook"


@contextmanager
def gpu_engine(folder: Path) -> Iterator[second.SecondEngine]:
    """Run the engine and copy Debian's base image to it. The description of the GPUs is written to ``folder``."""
    specifications, programs = folder / "cdi", folder / "bin"
    specifications.mkdir()
    (specifications / "stand-ins.json").write_text(json.dumps(_specification()))
    programs.mkdir()
    (programs / HOOK).symlink_to(hook.__file__)
    engine = second.SecondEngine(
        name="farandole-g",
        cable=IPv4Network("10.215.255.0/30"),
        containers=IPv4Network("10.215.0.0/24"),
        settings={"features": {"cdi": True}, "cdi-spec-dirs": [str(specifications)]},
        programs=programs,
    )
    with second.running(engine):
        engine.copy(BASE_IMAGE)
        yield engine


def _specification() -> dict[str, Any]:
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": gpu, "containerEdits": {"deviceNodes": [_node(gpu)]}} for gpu in hook.GPUS],
        # NVIDIA's own CDI files set the variable to this value too.
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }


def _node(gpu: str) -> dict[str, Any]:
    return {"path": f"/dev/nvidia{gpu}", "type": "c", "major": hook.MAJOR, "minor": int(gpu), "permissions": "rw"}
