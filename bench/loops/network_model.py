"""The first part of the cell of the network bench: a model with the parameters of ResNet-18."""

import time

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


class Layer(torch.autograd.Function):
    """A layer that sleeps in place of computing, as a GPU leaves the processor free. Backward takes twice as long."""

    @staticmethod
    def forward(ctx, x, parameter, seconds):
        ctx.seconds = seconds
        ctx.save_for_backward(parameter)
        time.sleep(seconds / 3)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds * 2 / 3)
        return gradient, torch.zeros_like(ctx.saved_tensors[0]), None


class Model(nn.Module):
    """Layers one after the other, each with an equal share of the time of a step."""

    def __init__(self, seconds):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes_of_resnet18())
        self.seconds = seconds / len(self.parts)

    def forward(self, x):
        for part in self.parts:
            x = Layer.apply(x, part, self.seconds)
        return x
