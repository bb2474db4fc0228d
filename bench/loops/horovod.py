"""A plain Horovod loop: the same code runs in a cell and under horovodrun; turns.py follows it."""

import time

import horovod.torch as hvd
import torch

WARM_UP, BATCH = 40, 64

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 16 * 16, 32),
    torch.nn.ReLU(),
    torch.nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
images, labels = torch.randn(BATCH, 1, 16, 16), torch.randint(10, (BATCH,))


def train(steps):
    """Return seconds per step."""
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return (time.perf_counter() - began) / steps


train(WARM_UP)
pace = train(WARM_UP)
# All ranks have to take the same number of steps.
pace = hvd.broadcast(torch.tensor(pace), root_rank=0).item()
rank, size = hvd.rank(), hvd.size()
