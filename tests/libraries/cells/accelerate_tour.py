"""A training loop with Accelerate, as in the quick tour of its documentation."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
dataset = TensorDataset(torch.randn(64, 10), torch.randint(3, (64,)))
model = torch.nn.Linear(10, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4)
loss_function = torch.nn.CrossEntropyLoss()
training_dataloader = DataLoader(dataset, batch_size=8, shuffle=True)

accelerator = Accelerator()
model, optimizer, training_dataloader, scheduler = accelerator.prepare(model, optimizer, training_dataloader, scheduler)

for epoch in range(2):
    for batch in training_dataloader:
        optimizer.zero_grad()
        inputs, targets = batch
        outputs = model(inputs)
        loss = loss_function(outputs, targets)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
    accelerator.print(f"epoch {epoch} on {accelerator.num_processes} processes")

accelerator.end_training()
