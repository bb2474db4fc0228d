"""Tests of `fd.clip_grad_norm_` on a model that is not sharded; `tests/contract/test_mesh.py` has the others."""

import math

import farandole as fd
import pytest
import torch
from torch import nn


def model_with_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    model[1].bias.requires_grad_(False)
    model(torch.ones(2, 4)).sum().backward()
    return model


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("most", [0.1, 1000.0])
def test_it_clips_as_torch_does(norm_type, most):
    own, torchs = model_with_gradients(), model_with_gradients()
    norm = fd.clip_grad_norm_(own.parameters(), most, norm_type)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(torchs.parameters(), most, norm_type))
    for parameter, expected in zip(own.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)


def test_one_tensor_and_no_gradients():
    parameter = nn.Parameter(torch.ones(3))
    assert fd.clip_grad_norm_(parameter, 1.0) == 0
    parameter.grad = torch.full((3,), 2.0)
    assert fd.clip_grad_norm_(parameter, 1.0).item() == pytest.approx(math.sqrt(12))
    assert parameter.grad.norm().item() == pytest.approx(1.0, abs=1e-5)
