"""Arrange NVIDIA's compiler and NCCL in the layout that Horovod's build expects.

Run ``python images/horovod/cuda.py WHEELS FOLDER`` with a Python that has torch. Afterwards CUDA_HOME is
``FOLDER/nvidia/cu13``, and ``FOLDER/nccl`` has NCCL's folders ``include`` and ``lib``.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path


def install(wheels: Path, folder: Path) -> None:
    """Unpack the compiler's wheels, and add two links that the build needs but that the wheels do not contain."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    subprocess.run([*pip, "--target", str(folder), *(str(wheel) for wheel in wheels.glob("*.whl"))], check=True)
    home = folder / "nvidia" / "cu13"
    (home / "lib64").symlink_to("lib")
    (home / "lib" / "libcudart.so").symlink_to("libcudart.so.13")


def link_nccl(folder: Path) -> None:
    """Link to torch's NCCL, under the file name that the linker expects."""
    spec = importlib.util.find_spec("nvidia.nccl")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The installed torch has no NCCL, because it is not the CUDA build.")
    nccl = Path(spec.submodule_search_locations[0])
    (folder / "nccl" / "lib").mkdir(parents=True)
    (folder / "nccl" / "include").symlink_to(nccl / "include")
    (folder / "nccl" / "lib" / "libnccl.so").symlink_to(nccl / "lib" / "libnccl.so.2")


def main(arguments: list[str]) -> int:
    """Install the compiler and link NCCL; ``arguments`` are the folder of wheels and the target folder."""
    wheels, folder = (Path(argument) for argument in arguments)
    install(wheels, folder)
    link_nccl(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
