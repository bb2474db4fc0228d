"""The model of the throughput bench, and a batch for it. turns.py follows.

The code of the backend precedes this code and defines `rank`.
"""

import torch

WARM_UP, BATCH = 40, 64

torch.manual_seed(rank)
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
images, labels = torch.randn(BATCH, 1, 16, 16), torch.randint(10, (BATCH,))


def loss_of(model):
    """Return the loss of the batch."""
    return torch.nn.functional.cross_entropy(model(images), labels)
