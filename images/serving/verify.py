"""`python verify.py onnx|torch`: fail the image build if the modules of an endpoint cannot be imported."""

import importlib
import sys

ALL = ("farandole.serving.__main__", "onnxruntime", "faststream.kafka", "nats", "nkeys", "redis.asyncio")
MODULES = {"onnx": ALL, "torch": (*ALL, "torch.export", "safetensors.torch")}


def main(runtime: str) -> int:
    """Import the modules of an endpoint with ``runtime``, which `images/slim.py` must not have removed."""
    for name in MODULES[runtime]:
        importlib.import_module(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
