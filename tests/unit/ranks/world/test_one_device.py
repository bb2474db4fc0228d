"""Libraries that count one device on a machine without a GPU count the ranks of the torch backend."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from farandole.ranks.world import libraries
libraries.current().watch_imports()
{}
"""
LIGHTNING = """
from {package}.cpu import CPUAccelerator
assert CPUAccelerator.auto_device_count() == {count}
"""
ACCELERATE = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
from accelerate import PartialState
assert PartialState().distributed_type.value == {kind!r}
PartialState._reset_state()
assert PartialState(cpu=True).distributed_type.value == "MULTI_CPU"
"""


def check(code, backend, **variables):
    """Run code in a process that is a rank of two, with an import watch."""
    rank = {"FARANDOLE_BACKEND": backend, "FARANDOLE_SIZE": "2", "FARANDOLE_LOCAL_SIZE": "2", "WORLD_SIZE": "2"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT.format(code)], env=os.environ | rank | variables, check=True, timeout=120
    )


@pytest.mark.parametrize(
    "package",
    [pytest.param("lightning.fabric.accelerators", marks=pytest.mark.release), "lightning.pytorch.accelerators"],
)
def test_lightnings_automatic_number_of_devices_is_that_of_the_ranks(package):
    check(LIGHTNING.format(package=package, count=2), "torch")


@pytest.mark.release
def test_on_other_backends_lightning_counts_one_device():
    check(LIGHTNING.format(package="lightning.fabric.accelerators", count=1), "horovod")


@pytest.mark.parametrize(("value", "kind"), [("true", "MULTI_CPU"), ("", "NO")])
def test_a_partial_state_of_accelerate_uses_the_process_group(value, kind):
    check(ACCELERATE.format(kind=kind), "torch", ACCELERATE_USE_CPU=value, MASTER_ADDR="127.0.0.1")
