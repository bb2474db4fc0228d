"""The cell of the network bench: a model with the parameters of ResNet-18, and a step of a fixed duration."""

import statistics
import time

import farandole as fd
import torch
from torch import nn

torch.set_num_threads(1)


def shapes_of_resnet18():
    """Return the shapes of the parameters of ResNet-18 with 10 classes (He et al., 2016): 44.7 MB of float32."""
    shapes, width = [(64, 3, 7, 7), (64,), (64,)], 64
    for channels in (64, 128, 256, 512):
        for block in range(2):
            for inputs in (width, channels):
                shapes += [(channels, inputs, 3, 3), (channels,), (channels,)]
            if width != channels and block == 0:
                shapes += [(channels, width, 1, 1), (channels,), (channels,)]
            width = channels
    return [*shapes, (10, 512), (10,)]


class Model(nn.Module):
    """A model whose backward pass only copies a number into each gradient."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes_of_resnet18())

    def forward(self, x):
        return sum(part.mean() for part in self.parts) * x


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, _ = fd.prepare(model, optimizer, sync=SYNC)
seconds = COMPUTE * (STRAGGLER if fd.rank() == fd.size() - 1 and fd.size() > 1 else 1)
durations = []
for _ in range(WARM_UP + STEPS):
    begun = time.perf_counter()
    optimizer.zero_grad()
    loss = model(torch.ones(()))
    # This stands for the computation, which on a GPU leaves the processor free.
    time.sleep(seconds)
    loss.backward()
    optimizer.step()
    durations.append(time.perf_counter() - begun)
fd.result(statistics.fmean(durations[WARM_UP:]))
