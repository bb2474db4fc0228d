"""Tests for the functions that the driver calls on a rank. Each test runs them in a separate process."""

import subprocess
import sys

import pytest

PRELOAD = """
import gc
from farandole.ranks import control

control.preload("torch")
print(gc.get_freeze_count() > 100_000)
"""


@pytest.mark.parametrize(("before", "frozen"), [("", "True"), ("import torch", "False")])
def test_modules_but_no_models_are_excluded_from_garbage_collections(before, frozen):
    command = [sys.executable, "-c", before + PRELOAD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == frozen
