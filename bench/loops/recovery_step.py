"""A training loop for the bench of recoveries: rank KILL kills itself at step 20; the line above it sets KILL."""

import os
import signal
import time
from pathlib import Path

import farandole as fd
import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(960, 64))
model, optimizer, loader = fd.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=24))
state = fd.state(model, optimizer, loader, step=0)
mark = Path(MARK)  # noqa: F821


@fd.elastic
def train(state):
    """Train one epoch of 40 steps."""
    for (x,) in loader:
        if state.step == 20 and fd.rank() == KILL and not mark.exists():  # noqa: F821
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()
        fd.report(step=state.step)
        time.sleep(0.02)


train(state)
