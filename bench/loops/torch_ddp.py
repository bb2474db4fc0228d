"""A plain DistributedDataParallel loop: the same code runs in a cell and under torchrun; turns.py follows it."""

import time

import torch
import torch.distributed as dist

WARM_UP, BATCH = 40, 64

if not dist.is_initialized():
    dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
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
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
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
shared = torch.tensor(pace)
dist.broadcast(shared, src=0)
pace = shared.item()
rank, size = dist.get_rank(), dist.get_world_size()
