"""Libraries recognize a rank of the torch backend as a process that a launcher has started."""

import argparse
import sys

import pytest
import torch
from farandole.ranks.world import launcher


@pytest.fixture
def rank(monkeypatch):
    """Yield a function that sets up this process, which has a kernel's prompt, for a world."""
    vars(sys)["ps1"] = "In : "
    monkeypatch.setattr(launcher, "_prompt", {})
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(launcher.cores, "threads", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def set_up(backend, *, gpu=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setenv("FARANDOLE_BACKEND", backend)
        return launcher.set_up()

    yield set_up
    vars(sys).pop("ps1", None)


def test_a_rank_without_a_gpu_tells_accelerate(rank):
    assert rank("torch") == {"OMP_NUM_THREADS": "3", "ACCELERATE_USE_CPU": "true"}
    assert rank("torch", gpu=True) == {"OMP_NUM_THREADS": "3"}
    assert rank("horovod") == {"OMP_NUM_THREADS": "3"}
    assert rank("none") == {}


def test_the_users_number_of_threads_remains(rank, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in rank("torch")


def test_the_prompt_is_hidden_only_where_libraries_can_train(rank):
    for backend, prompt in (("torch", None), ("torch", None), ("horovod", "In : "), ("torch", None), ("none", "In : ")):
        rank(backend)
        assert getattr(sys, "ps1", None) == prompt


def test_a_process_without_a_prompt_gets_none(rank):
    del sys.ps1
    for backend in ("torch", "horovod"):
        rank(backend)
        assert not hasattr(sys, "ps1")


def test_a_script_sees_no_arguments_of_the_kernel_but_its_own(monkeypatch):
    launcher.clear_arguments.cache_clear()
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    launcher.clear_arguments()
    assert parser.parse_args().lr == 0.1
    sys.argv[1:] = ["--lr", "0.5"]
    launcher.clear_arguments()
    assert parser.parse_args().lr == 0.5
    launcher.clear_arguments.cache_clear()
