"""`python verify.py cpu|cuda`: fail the image build if the installed packages do not work together."""

import os
import subprocess
import sys

MODULES = (
    "numpy.testing",
    "matplotlib.pyplot",
    "pandas",
    "sklearn.datasets",
    "scipy.optimize",
    "tensorboard.program",
    "jupyterlab",
    "jupyterhub.singleuser",
    "jupyter_server_proxy",
    "farandole.server.tensorboard.entry",
    "farandole.notebook.magics",
    "onnxscript",
    "safetensors.torch",
)


def check_torch(accelerator: str) -> None:
    """Raise SystemExit if torch was built for another accelerator."""
    import torch

    found = "cuda" if torch.version.cuda else "cpu"
    if found != accelerator:
        raise SystemExit(
            f"pip found torch {torch.__version__}, built for {found}, but this image is for {accelerator}. For the CPU "
            "let pip find PyTorch's CPU wheels: set PIP_EXTRA_INDEX_URL to their index (pytorch.org, 'Get started', "
            "names it), remove build/images and run `make images` again."
        )


def check_horovod(accelerator: str) -> None:
    """Raise SystemExit if Horovod cannot be initialized, or lacks NCCL in an image for CUDA."""
    import horovod.torch as hvd

    hvd.init()
    if hvd.size() != 1 or (accelerator == "cuda" and not hvd.nccl_built()):
        raise SystemExit("This build of Horovod is unusable: it cannot start a process group, or it lacks NCCL.")
    hvd.shutdown()


def main(accelerator: str) -> int:
    """Check torch, Horovod, the imports of `MODULES` and the dependencies of all packages."""
    check_torch(accelerator)
    check_horovod(accelerator)
    subprocess.run(
        [sys.executable, "-c", f"import {', '.join(MODULES)}"], check=True, env={**os.environ, "HOME": "/tmp"}
    )
    subprocess.run([sys.executable, "-m", "pip", "check"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
