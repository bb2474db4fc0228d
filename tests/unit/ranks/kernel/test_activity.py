"""Tests what a rank says about its main thread: the collective in which it waits, and the user's line."""

import importlib.util
import json
import subprocess
import sys
import textwrap
import threading
import time
import types
from functools import partial

import pytest
from farandole.protocol import CELL_PLACE
from farandole.ranks.kernel import activity
from jupyter_client.manager import start_new_kernel

DEADLINE = 60
RANK = """
import json, os, sys, threading, time
from datetime import timedelta
import torch
import torch.distributed as dist
from farandole.ranks.kernel import activity
from farandole.ranks.training.sync import exchange

os.environ |= {"FARANDOLE_BACKEND": "torch", "FARANDOLE_SIZE": "2"}
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
ones, loss = torch.ones(1), ddp(torch.ones(2, 2)).sum()
group = dist.new_group([0, 1])

def all_reduce():
    dist.all_reduce(ones)

def subgroup():
    dist.all_reduce(ones, group=group)

def gather():
    dist.all_gather_object([None, None], "object")

def work():
    work = dist.all_reduce(ones, async_op=True)
    work.wait()

def backward():
    loss.backward()

def forward():
    ddp(torch.ones(2, 2))

def average():
    mean_change = exchange.start_sum(ones, "test")
    mean_change()

FUNCTIONS = (all_reduce, subgroup, gather, work, backward, forward, average, all_reduce)

def look(seen):
    # In a backward pass, the thread waits once it has stopped computing.
    while len(seen) < 2 or seen[-1] != seen[-2] or not seen[-1]["call"]:
        time.sleep(0.05)
        seen.append(activity.of_main_thread())
    store.set(f"seen {number}", "")

for number, function in enumerate(FUNCTIONS):
    seen = []
    if rank == 0:
        thread = threading.Thread(target=look, args=(seen,))
        thread.start()
    else:
        store.wait([f"seen {number}"])
    function()
    if rank == 0:
        thread.join()
        print(json.dumps([seen[-2], seen[-1]]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def waits(tmp_path_factory):
    """Return two looks at rank 0 in each of several collectives, which rank 1 enters only later."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(RANK)
    commands = [[sys.executable, str(folder / "train.py"), rank, str(folder / "store")] for rank in "01"]
    other = subprocess.Popen(commands[1])
    try:
        rank = subprocess.run(commands[0], stdout=subprocess.PIPE, timeout=2 * DEADLINE, check=True)
        assert other.wait(DEADLINE) == 0
    finally:
        other.kill()
        other.wait()
    return [json.loads(line) for line in rank.stdout.splitlines()]


@pytest.mark.parametrize(
    ("number", "call", "source"),
    [
        (0, "dist.all_reduce", "dist.all_reduce(ones)"),
        (1, "dist.all_reduce", "dist.all_reduce(ones, group=group)"),
        (2, "dist.all_gather_object", 'dist.all_gather_object([None, None], "object")'),
        (3, "work.wait", "work.wait()"),
        (4, "loss.backward", "loss.backward()"),
        (5, "ddp", "ddp(torch.ones(2, 2))"),
        (6, "mean_change", "mean_change()"),
    ],
)
def test_a_rank_that_waits_names_the_call_and_the_line(waits, number, call, source):
    line = max(at for at, text in enumerate(RANK.splitlines(), 1) if text.strip() == source)
    _, seen = waits[number]
    assert (seen["call"], seen["place"]) == (call, f"train.py, line {line}")
    assert seen["doing"].rpartition(".")[2] == call.rpartition(".")[2]


def test_only_a_backward_pass_needs_the_time_that_the_thread_has_computed(waits):
    assert [number for number, (_, seen) in enumerate(waits) if seen["cpu"]] == [4]


def test_the_mark_is_the_same_within_a_collective_and_differs_between_two(waits):
    marks = [(before["mark"], after["mark"]) for before, after in waits]
    assert all(before == after for before, after in marks)
    # The first and the last collective are the same call in the same line. The second is in another process group.
    assert len({after for _, after in marks}) == len(marks)


def seen_in(call, condition):
    """Return what the main thread is doing as soon as ``condition`` is true, while it executes ``call(wait)``.

    ``wait`` is a method in C, which has no frame.
    """
    lock, found = threading.Lock(), [activity.of_main_thread()]
    lock.acquire()

    def look():
        give_up = time.monotonic() + DEADLINE
        while not condition(found[-1]) and time.monotonic() < give_up:
            found.append(activity.of_main_thread())
        lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    call(lock.acquire)
    thread.join()
    return found[-1]


def users(tmp_path, code):
    """Import a user's module with this code."""
    path = tmp_path / "user.py"
    path.write_text(textwrap.dedent(code))
    spec = importlib.util.spec_from_file_location("user", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def library(name, code):
    """Return a library's module with this code."""
    loaded = types.ModuleType(name)
    exec(compile(textwrap.dedent(code), "/usr/lib/python3/dist-packages/library.py", "exec"), loaded.__dict__)
    return loaded


def test_a_rank_that_waits_for_something_else_is_in_no_collective(tmp_path):
    code = """
    def evaluate(wait):
        é = "é"; assert wait(
            timeout=60
        ), é
    """
    found = seen_in(users(tmp_path, code).evaluate, lambda found: found["doing"] == "wait")
    assert (found["call"], found["place"], found["outside"]) == ("", "user.py, line 3", False)


@pytest.mark.parametrize(("function", "call"), [("allreduce", "hvd.allreduce"), ("_step", "call"), ("join", "")])
def test_horovods_calls_have_the_names_of_its_documentation(tmp_path, function, call):
    code = f"""
    def synchronize(handle, wait):
        wait()
    def {function}(wait):
        synchronize(17, wait)
    """
    horovod = library("horovod.torch.mpi_ops", code)
    user = users(tmp_path, "def train(call, wait):\n    call(wait)\n")
    found = seen_in(partial(user.train, getattr(horovod, function)), lambda found: found["mark"].endswith(" 17"))
    assert (found["call"], found["place"]) == (call, "user.py, line 2")
    # The CPU time is measured only for waits in a backward pass.
    assert found["cpu"] == 0.0


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        ("torch.distributed.distributed_c10d", "barrier", "dist.barrier"),
        ("torch.nn.parallel.distributed", "_sync_buffers", "DistributedDataParallel"),
        ("torch.distributed.utils", "_sync", "a collective"),
    ],
)
def test_a_collective_that_a_library_makes_is_named_with_the_users_line(tmp_path, module, function, call):
    communication = library(module, f"def {function}(wait):\n    wait()\n")
    trainer = library("trainer", "def train(barrier, wait):\n    barrier(wait)\n")
    user = users(tmp_path, "def run(trainer, barrier, wait):\n    trainer.train(barrier, wait)\n")
    found = seen_in(partial(user.run, trainer, getattr(communication, function)), lambda found: found["call"])
    assert (found["call"], found["doing"]) == (call, "trainer.train")


def test_a_line_of_a_cell_has_the_numbers_of_the_notebook():
    manager, client = start_new_kernel(startup_timeout=DEADLINE)
    try:
        run(client, "from farandole.ranks.kernel import activity, numbering\nnumbering.install()")
        run(
            client,
            "import threading, time\n"
            "def look():\n"
            "    while not (found and found[-1]['doing'] == 'time.sleep'):\n"
            "        found.append(activity.of_main_thread())\n"
            "    seen.set()\n"
            "found, seen = [], threading.Event()\n"
            "threading.Thread(target=look).start()",
            {"number": 3, "lines_above": 1},
        )
        run(client, "while not seen.is_set():\n    time.sleep(0.2)", {"number": 4, "lines_above": 1})
        place = run(client, "print(found[-1]['place'])")
        assert place == "cell 4, line 3\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client, code, place=None):
    """Execute code as a driver does, and return what it prints."""
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": True}
    request = client.session.msg("execute_request", content, metadata={CELL_PLACE: place} if place else {})
    client.shell_channel.send(request)
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=DEADLINE)
        if message["parent_header"].get("msg_id") != request["msg_id"]:
            continue
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] == "stream":
            text += message["content"]["text"]
        if message["content"].get("execution_state") == "idle":
            return text
