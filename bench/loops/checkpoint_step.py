"""Train a 100 MB model on all ranks, in turn a block without and a block with a commit, or with a checkpoint.

The bench puts `PAIRS` before it.
"""

import statistics
import time

import farandole as fd
import torch
import torch.distributed as dist

WIDTH, LAYERS, BATCH = 2236, 5, 64
"""5 layers of 2236 x 2236 numbers of 4 bytes."""
CHECKPOINT_SECONDS, COMMIT_STEPS = 10.0, 10

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
model, optimizer, _ = fd.prepare(model, optimizer)
x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
state = fd.state(model, optimizer, step=0)


def train(steps, end=None):
    """Return seconds a step; with `end`, called before the clock stops, the first step is followed by a commit."""
    began = time.perf_counter()
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        state.step += 1
        if end is not None and step == 0:
            state.commit()
    if end is not None:
        end()
    return (time.perf_counter() - began) / steps


def overhead(steps, end):
    """Return by how many percent the blocks that commit are slower, a pair each, and seconds of a plain step."""
    percents, plain = [], []
    for pair in range(PAIRS):
        seconds = {}
        # The order changes from pair to pair, so that a drift of the machine's speed falls out.
        for commits in (True, False) if pair % 2 else (False, True):
            seconds[commits] = train(steps, end if commits else None)
        percents.append((seconds[True] / seconds[False] - 1) * 100)
        plain.append(seconds[False])
    return percents, statistics.median(plain)


train(3)
for _ in range(3):  # the buffers of the copies
    state.commit()
commit, step_seconds = overhead(COMMIT_STEPS, lambda: None)
steps = torch.tensor(max(2, round(CHECKPOINT_SECONDS / step_seconds)))
dist.broadcast(steps, src=0)  # every rank has to take the same number of steps
made = fd.checkpoint(state, every=1)
# The block ends when the checkpoint is on disk: its cost may not fall into the next one.
checkpoint, step_seconds = overhead(int(steps), made.wait)
fd.result({"commit": commit, "checkpoint": checkpoint, "step_ms": step_seconds * 1e3})
