"""A second engine with two stand-in GPUs: device nodes of NVIDIA's kind without a device behind them.

Both forms of a request work. CDI: the engine reads the nodes of a GPU from a file. NVIDIA's runtime: the engine
finds a program named nvidia-container-runtime-hook and runs it before a container starts.
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
    """Run the engine with Debian's base image; ``folder`` is an empty folder for its description of the GPUs."""
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
        # The same as in NVIDIA's files.
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }


def _node(gpu: str) -> dict[str, Any]:
    return {"path": f"/dev/nvidia{gpu}", "type": "c", "major": hook.MAJOR, "minor": int(gpu), "permissions": "rw"}
