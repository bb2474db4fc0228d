"""The model of the sharding bench, whose steps take more than 50 ms, and a batch for it. turns.py follows.

The code of the backend precedes this code and defines `rank`.
"""

import torch

WARM_UP, BATCH = 5, 8
LAYERS, WIDTH, LENGTH = 6, 256, 32

torch.manual_seed(rank)
model = torch.nn.Sequential(
    *(
        torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(LAYERS)
    )
)
sequences, targets = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, LENGTH, WIDTH)


def loss_of(model):
    """Return the loss of the batch."""
    return torch.nn.functional.mse_loss(model(sequences), targets)
