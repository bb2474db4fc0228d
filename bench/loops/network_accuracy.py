"""The cell of the accuracy bench: a small convolutional network on images in the layout of CINIC-10.

The cell before it sets DATA, EPOCHS, BATCH (images of a rank in a step), RATE, SEED and SYNC.
"""

import math
from pathlib import Path

import farandole as fd
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WARM_UP = 60  # steps


def load(split):
    """Return the images of a folder, of shape (n, 3, 32, 32), and their labels."""
    images, labels = [], []
    for label, place in enumerate(sorted(path for path in (Path(DATA) / split).iterdir() if path.is_dir())):
        for file in sorted(place.glob("*.png")):
            images.append(np.asarray(Image.open(file).convert("RGB")))
            labels.append(label)
    pixels = torch.tensor(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return (pixels - 0.48) / 0.245, torch.tensor(labels)


def block(inputs, outputs, stride=1):
    """Return a convolution with batch normalization."""
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


@torch.no_grad()
def accuracy(model, data):
    """Return the fraction of images that the model recognizes."""
    model.eval()
    batches = DataLoader(TensorDataset(*data), batch_size=500)
    right = sum((model(x.to(fd.device())).argmax(1).cpu() == y).sum().item() for x, y in batches)
    model.train()
    return right / len(data[1])


if "images" not in globals() or loaded != DATA:
    images, loaded = {split: load(split) for split in ("train", "valid", "test")}, DATA
torch.manual_seed(SEED)
model = nn.Sequential(
    *(*block(3, 16, stride=2), *block(16, 32), nn.MaxPool2d(2), *block(32, 64), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(1024, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
loader = DataLoader(TensorDataset(*images["train"]), batch_size=BATCH * fd.size(), shuffle=True, drop_last=True)
steps = EPOCHS * len(loader)
# A warm-up allows the higher learning rates of more ranks (Goyal et al., 2017), and a cosine lowers them to zero.
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
)
model, optimizer, loader = fd.prepare(model, optimizer, loader, sync=SYNC)
for _ in range(EPOCHS):
    for x, y in loader:
        # Half of the images are mirrored.
        seen = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x, x.flip(3))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(seen), y).backward()
        optimizer.step()
        schedule.step()
fd.sync.finish(optimizer, batches=DataLoader(images["train"][0], batch_size=500))
fd.result({"valid": accuracy(model, images["valid"]), "test": accuracy(model, images["test"])})
