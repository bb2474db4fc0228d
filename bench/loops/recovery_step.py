"""The training loop of the recovery bench, in which rank KILL kills itself once, at step 27.

The bench prepends KILL, MARK (the path of a file that is created before the kill), WIDTH, LAYERS and COMMIT_STEPS.
"""

import os
import signal
import time
from pathlib import Path

import farandole as fd
import torch

STEPS, BATCH, FATAL = 40, 24, 27

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))  # noqa: F821
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(STEPS * BATCH, WIDTH))  # noqa: F821
model, optimizer, loader = fd.prepare(model, optimizer, torch.utils.data.DataLoader(data, BATCH))
state = fd.state(model, optimizer, loader, step=0)
mark = Path(MARK)  # noqa: F821


@fd.elastic
def train(state):
    """Train one epoch; rank KILL kills itself at step FATAL unless MARK exists."""
    for (x,) in loader:
        if state.step == FATAL and fd.rank() == KILL and not mark.exists():  # noqa: F821
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        state.step += 1
        if state.step % COMMIT_STEPS == 0:  # noqa: F821
            state.commit()
        fd.report(step=state.step)
        time.sleep(0.02)


train(state)
