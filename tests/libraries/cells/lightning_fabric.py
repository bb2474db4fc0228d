"""The loop of "Convert PyTorch code to Fabric" in Lightning's documentation."""

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric()
fabric.launch()

torch.manual_seed(0)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
dataset = TensorDataset(torch.randn(64, 10), torch.randn(64, 1))
dataloader = fabric.setup_dataloaders(DataLoader(dataset, batch_size=8))
model.train()

for epoch in range(2):
    for batch in dataloader:
        inputs, target = batch
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), target)
        fabric.backward(loss)
        optimizer.step()
    fabric.print(f"epoch {epoch} on {fabric.world_size} processes")
