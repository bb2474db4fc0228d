"""Copies of commits outlive a process. They are complete or absent, and are read only by the run that wrote them."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from farandole.ranks.checkpoints import memory_checkpoint
from farandole.ranks.checkpoints.memory_checkpoint import HEADER, MemoryCheckpoint
from farandole.ranks.state.state import state as fd_state


def make_state(weight=0.0):
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, weight)
    return fd_state(model, step=0)


def kept(folder, commits, run="r"):
    """Make and save ``commits`` commits, with each commit's number as the weight, and return the state."""
    one, state = MemoryCheckpoint(run, folder), make_state()
    for number in range(1, commits + 1):
        torch.nn.init.constant_(state.model.weight, number)
        state.step = number
        state.commit()
        one._next = 0.0
        one.save(state, 3)
    return state


def found(folder, run="r"):
    state = make_state()
    lr_size = MemoryCheckpoint(run, folder).load(state)
    return state.commits, state.step, state.model.weight[0, 0].item(), lr_size


def test_another_process_finds_the_last_commit(tmp_path):
    kept(tmp_path, 3)
    assert found(tmp_path) == (3, 3, 3.0, 3)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_incomplete_copy_leaves_the_previous_one(tmp_path):
    kept(tmp_path, 3)
    for path in tmp_path.iterdir():
        if HEADER.unpack_from(path.read_bytes())[1] == 3:
            path.write_bytes(path.read_bytes()[:-10])
    assert found(tmp_path) == (2, 2, 2.0, 3)


def test_damaged_copies_and_copies_of_other_runs_are_ignored(tmp_path):
    kept(tmp_path, 1)
    kept(tmp_path, 2, run="other")
    [path] = tmp_path.glob("farandole-r-*")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert found(tmp_path) == (0, 0, 0.0, None)


def test_a_newer_state_is_kept(tmp_path):
    kept(tmp_path, 1)
    state = make_state(weight=5.0)
    state.commit()
    assert MemoryCheckpoint("r", tmp_path).load(state) is None
    assert state.model.weight[0, 0].item() == 5.0


def test_a_commit_right_after_a_copy_is_skipped(tmp_path):
    one, state = MemoryCheckpoint("r", tmp_path), make_state()
    state.commit()
    one.save(state, None)
    one._next = float("inf")
    state.commit()
    one.save(state, None)
    assert found(tmp_path)[0] == 1


def test_copies_are_removed_with_their_run_and_others_are_kept(tmp_path):
    kept(tmp_path, 2)
    kept(tmp_path, 1, run="other")
    MemoryCheckpoint("r", tmp_path).remove()
    assert [path.name.split("-")[1] for path in tmp_path.iterdir()] == ["other"]


def test_the_memory_of_a_removed_copy_is_freed_at_the_next_commit(tmp_path):
    one, state = MemoryCheckpoint("r", tmp_path), make_state()
    state.commit()
    one.save(state, None)
    one._next = float("inf")
    MemoryCheckpoint("r", tmp_path).remove()
    assert held(tmp_path) == 1
    one.save(state, None)
    assert held(tmp_path) == 0


def held(folder):
    """Return the number of files in a folder that this process has open, including deleted files."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # The descriptor that was used to list the folder is already closed.
            count += descriptor.readlink().is_relative_to(folder)
    return count


def test_without_room_for_four_copies_none_is_kept(tmp_path, monkeypatch):
    statvfs, scarce = os.statvfs, []

    def free(path):
        found = statvfs(path)
        return SimpleNamespace(f_frsize=found.f_frsize, f_bavail=0) if scarce else found

    monkeypatch.setattr(os, "statvfs", free)
    one, state = MemoryCheckpoint("r", tmp_path), make_state()
    for number, wanted in ((1, 1), (2, 0), (3, 1)):
        scarce[:] = [True] * (number == 2)
        state.commit()
        one._next = 0.0
        one.save(state, None)
        assert (len(list(tmp_path.iterdir())), held(tmp_path)) == (wanted, wanted)
    assert found(tmp_path)[0] == 3


def test_the_run_continues_if_memory_ends_during_a_copy(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    one, state = MemoryCheckpoint("r", tmp_path), fd_state(large=torch.zeros(100_000))
    state.commit()
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        one.save(state, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_of_several_copies_is_read_completely(tmp_path, monkeypatch):
    kept(tmp_path, 2)
    read, whole = [], memory_checkpoint._read
    monkeypatch.setattr(memory_checkpoint, "_read", lambda path: read.append(path) or whole(path))
    assert found(tmp_path)[0] == 2
    assert len(read) == 1


def test_the_run_continues_if_nothing_can_be_written(tmp_path):
    kept(tmp_path / "missing", 2)
    assert found(tmp_path / "missing") == (0, 0, 0.0, None)


def test_a_link_in_place_of_a_copy_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    for turn in (0, 1):
        (folder / f"farandole-r--{turn}").symlink_to(victim)
    kept(folder, 2)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("turn", range(3))
def test_a_kill_during_a_copy_leaves_a_complete_copy(tmp_path, turn):
    code = (
        "import os, sys, threading, torch\n"
        "from pathlib import Path\n"
        "from farandole.ranks.checkpoints.memory_checkpoint import MemoryCheckpoint\n"
        "from farandole.ranks.state.state import state as fd_state\n"
        "one, state = MemoryCheckpoint('r', Path(sys.argv[1])), fd_state(step=0, large=torch.zeros(500_000))\n"
        "for state.step in range(1, 10_000):\n"
        "    state.large = torch.full((500_000,), float(state.step))\n"
        "    state.commit()\n"
        "    one._next = 0.0\n"
        "    one.save(state, None)\n"
        "    if state.step == 3: print('kept', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"kept\n"
        child.kill()
    state = fd_state(step=0, large=torch.zeros(500_000))
    memory_checkpoint.MemoryCheckpoint("r", tmp_path).load(state)
    assert state.step >= 2
    assert state.large.unique().tolist() == [float(state.step)]
