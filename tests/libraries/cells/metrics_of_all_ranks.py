"""The use of torchmetrics in distributed training, as its overview shows it."""

import os

import torch
import torchmetrics
from torch.nn.parallel import DistributedDataParallel as DDP

torch.distributed.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
metric = torchmetrics.classification.Accuracy(task="multiclass", num_classes=5)
model = torch.nn.Linear(3, 5)
model.metric = metric
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hits = count = 0

for _ in range(10):
    preds = model(torch.randn(10, 3))
    target = torch.randint(5, (10,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(preds, target).backward()
    optimizer.step()
    metric(preds.softmax(dim=-1), target)
    hits, count = hits + int((preds.argmax(1) == target).sum()), count + len(target)
acc = metric.compute()
print(f"Accuracy on all data: {acc}")
metric.reset()
torch.distributed.destroy_process_group()
