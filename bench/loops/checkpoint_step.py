"""Train a 100 MB model on all ranks, in alternating blocks with and without a commit or checkpoint.

The bench prepends `PAIRS`. On a shared machine, the durations of successive blocks differ by several percent. Therefore
the blocks are short, each repeat has several pairs of blocks, and the cost of a checkpoint is divided by the interval
between checkpoints.
"""

import statistics
import time

import farandole as fd
import torch

WIDTH, LAYERS, BATCH = 2236, 5, 64
"""The model has 5 float32 layers of 2236 x 2236 parameters, which take 100 MB."""
CHECKPOINT_SECONDS = 10.0
BLOCK_STEPS = 10
"""The number of steps in a block; a block has at most one commit."""

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
model, optimizer, _ = fd.prepare(model, optimizer)
x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
state = fd.state(model, optimizer, step=0)


def train(steps, end=None):
    """Return how many seconds ``steps`` steps take.

    With ``end``, the first step is followed by a commit, and the time includes a final call of ``end``.
    """
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
    return time.perf_counter() - began


def costs(pairs, end):
    """Return two values for each pair of blocks: the extra seconds of the block with a commit, and the other's seconds.

    The block with a commit ends with a call of ``end``.
    """
    found = []
    for pair in range(pairs):
        seconds = {}
        # Alternate the order, so that drift in the machine's speed cancels out.
        for commits in (True, False) if pair % 2 else (False, True):
            seconds[commits] = train(BLOCK_STEPS, end if commits else None)
        found.append((seconds[True] - seconds[False], seconds[False]))
    return found


train(3)
for _ in range(3):  # the first commits are slower, because they allocate buffers
    state.commit()
commits = costs(4 * PAIRS, lambda: None)
made = fd.checkpoint(state, every=1)
# The block ends when the checkpoint is on disk, so that the cost of the checkpoint does not affect the next block.
checkpoints = costs(8 * PAIRS, made.wait)
fd.result(
    {
        "commit": [cost / block * 100 for cost, block in commits],
        "checkpoint": [cost / CHECKPOINT_SECONDS * 100 for cost, _ in checkpoints],
        "step_ms": statistics.median(block for _, block in commits + checkpoints) / BLOCK_STEPS * 1e3,
    }
)
