"""Keras's guide "Multi-GPU distributed training with PyTorch", on CPUs."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

num_processes = int(os.environ["WORLD_SIZE"])
process = int(os.environ["RANK"])


def get_model():
    inputs = keras.Input(shape=(8, 8, 1))
    x = keras.layers.Conv2D(filters=4, kernel_size=3, use_bias=False)(inputs)
    x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


torch.distributed.init_process_group(backend="gloo", init_method="env://", world_size=num_processes, rank=process)
keras.utils.set_random_seed(0)
dataset = TensorDataset(torch.randn(64, 8, 8, 1), torch.randint(3, (64,)))
model = get_model()
model(torch.zeros(1, 8, 8, 1))
sampler = DistributedSampler(dataset, num_replicas=num_processes, rank=process, shuffle=False)
dataloader = DataLoader(dataset, sampler=sampler, batch_size=8, shuffle=False)
ddp_model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = torch.nn.CrossEntropyLoss()

for epoch in range(2):
    for inputs, targets in dataloader:
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} on {num_processes} processes")
torch.distributed.destroy_process_group()
