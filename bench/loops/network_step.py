"""The second part of the cell of the network bench: steps of a fixed duration.

The lines before it set COMPUTE (seconds of a step), FIRST_STEPS, STEPS, STRAGGLER and SYNC, and have the model. If SYNC
is None, the ranks do not communicate.
"""

import time

import farandole as fd
import torch

model = Model(COMPUTE * (STRAGGLER if fd.rank() == fd.size() - 1 and fd.size() > 1 else 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if SYNC is not None:
    model, optimizer, _ = fd.prepare(model, optimizer, sync=SYNC)


def step():
    """Take a step."""
    optimizer.zero_grad()
    model(torch.ones((), requires_grad=True)).backward()
    optimizer.step()


for _ in range(FIRST_STEPS):
    step()
begun = time.perf_counter()
for _ in range(STEPS):
    step()
if SYNC is not None:
    # An epoch ends with parameters that are equal on all ranks.
    fd.sync.finish(optimizer)
fd.result((time.perf_counter() - begun) / STEPS)
