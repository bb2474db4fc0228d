"""Cells that tests send to ranks, and a function that simulates Ctrl-C."""

import _thread
import time
from collections import Counter

import pytest

SUM = {
    "horovod": "import horovod.torch as hvd, torch\nprint(int(hvd.allreduce(torch.ones(1), op=hvd.Sum)))",
    "torch": "import torch, torch.distributed as dist\nx = torch.ones(1); dist.all_reduce(x); print(int(x))",
}
"""For each backend, a cell that prints the number of ranks, which is counted with a collective of the backend."""

STUCK = {
    "horovod": "import horovod.torch as hvd, torch\nprint('in', flush=True)\nhvd.allreduce(torch.ones(1))",
    "torch": "import torch, torch.distributed as dist\nprint('in', flush=True)\ndist.all_reduce(torch.ones(1))",
}
"""For each backend, a cell that blocks until all ranks execute it."""

TRAIN = """
import os, signal, torch, farandole as fd
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, optimizer, loader = fd.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=8))
step = 0
for epoch in range({epochs}):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fd.report(step=step, loss=loss)
        step += 1
        {fault}
fd.result([step, sum(float(parameter.sum()) for parameter in model.parameters())])
"""


def train(epochs=2, fault="pass"):
    """Return a training cell. Each step ends with the statement ``fault``."""
    return TRAIN.format(epochs=epochs, fault=fault)


def text(blocks):
    """Return the text of all output blocks."""
    return "".join(block.text for block in blocks)


def interrupt_when_it_prints(work):
    """Call `work(show)`, simulate Ctrl-C at the first output, and return the seconds until KeyboardInterrupt."""
    pressed = []

    def press(block):
        if not pressed:
            pressed.append(time.monotonic())
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        work(press)
    return time.monotonic() - pressed[0]


ELASTIC = """
import os, signal, time, torch, farandole as fd
from pathlib import Path
from farandole.ranks.world.collectives import gather_bytes
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = {data}
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = fd.prepare(model, optimizer, loader, sync={sync})
state = fd.state(model, optimizer, loader, epoch=0, step=0, seen=b"")
marks = Path({folder!r})

def kill(rank, step, whom=os.getpid):
    mark = marks / f"killed-{{rank}}-{{step}}"
    if (fd.rank(), state.step) == (rank, step) and not mark.exists():
        mark.touch()
        os.kill(whom(), signal.SIGKILL)

{before}

@fd.elastic
def train(state):
    for state.epoch in range(state.epoch, {epochs}):
        for ids, x in loader:
            {fault}
            loss = (model(x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            state.seen += b"".join(gather_bytes(bytes(ids.tolist())))
            if state.step % {every} == 0:
                state.commit()
            fd.report(step=state.step, size=fd.size(), loss=loss)
    return state

train(state)
fd.result({{"step": state.step, "size": fd.size(), "seen": list(state.seen), "lr": optimizer.param_groups[0]["lr"],
            "weights": sum(p.sum().item() for p in model.parameters())}})
"""


TENSORS = "torch.utils.data.TensorDataset(torch.arange({samples}), torch.randn({samples}, 4))"


def elastic(folder, *, epochs=2, samples=248, every=1, fault="pass", before="", sync="'step'", data=TENSORS):
    """Return an elastic cell.

    Each step begins with the statement ``fault``. For example, ``kill(RANK, STEP)`` kills a rank once and leaves a file
    in ``folder``. The statements ``before`` run after the state has been created and before the training loop. An item
    of the expression ``data`` is a pair of a number below ``samples`` and four numbers.
    """
    options = {"epochs": epochs, "every": every, "fault": fault, "before": before, "sync": sync}
    return ELASTIC.format(folder=str(folder), data=data.replace("{samples}", str(samples)), **options)


CHECKPOINTS = "made = fd.checkpoint(state, every=10)"
"""A value for ``before`` that writes a checkpoint after every 10 commits."""

CONFIGURED = """
hp = fd.config(lr=0.1, batch=8)
(marks / f"used-{hp['lr']}-{hp['batch']}-{os.getpid()}").touch()
"""
"""A value for ``before`` in which each rank, also one that replaces a lost rank, records its hyper-parameters."""


def used_by_ranks(folder):
    """Return how many ranks have used which hyper-parameters in `CONFIGURED`, by ``LR-BATCH``."""
    return Counter(path.name.removeprefix("used-").rpartition("-")[0] for path in folder.glob("used-*"))


VANISH = (
    CHECKPOINTS
    + """
from farandole.ranks.metrics import reporter

def vanish(step):
    mark = marks / f"at-{step}-{fd.rank()}"
    if state.step != step or mark.exists():
        return
    made.wait()
    mark.touch()
    deadline = time.monotonic() + 60
    while len(list(marks.glob(f"at-{step}-*"))) < fd.size():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for copy in Path("/dev/shm").glob(f"farandole-{reporter.current().run}-*"):
        copy.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
)
"""`CHECKPOINTS` and ``vanish(STEP)``, which deletes the commits in shared memory and kills all ranks, but only once."""

LEARN = """
import os, signal, torch, farandole as fd
from pathlib import Path
torch.manual_seed(0)

def moons(count):
    angle, upper = torch.rand(count) * torch.pi, torch.arange(count) % 2
    x = torch.stack([angle.cos() + upper - 0.5, (1 - 2 * upper) * (angle.sin() - 0.25)], dim=1)
    return x + 0.1 * torch.randn(count, 2), upper

train_set, (test_x, test_y) = torch.utils.data.TensorDataset(*moons(384)), moons(1000)
model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
loader = torch.utils.data.DataLoader(train_set, batch_size=48, shuffle=True)
model, optimizer, loader = fd.prepare(model, optimizer, loader)
state = fd.state(model, optimizer, loader, epoch=0, step=0)

def kill(rank, step):
    mark = Path({folder!r}) / f"killed-{{step}}"
    if (fd.rank(), state.step) == (rank, step) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@fd.elastic
def train(state):
    for state.epoch in range(state.epoch, 16):
        for x, y in loader:
            {fault}
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            if state.step % 4 == 0:
                state.commit()

train(state)
with torch.no_grad():
    fd.result((model(test_x).argmax(1) == test_y).float().mean().item())
"""


def learn(folder, *, fault="pass"):
    """Return an elastic cell that trains for 128 steps. Its result is the accuracy on samples not used for training."""
    return LEARN.format(folder=str(folder), fault=fault)
