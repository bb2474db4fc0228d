"""Tests for parameters as one vector."""

import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.sync.vectors import ParameterVector
from torch import nn


def test_parameters_are_read_written_and_changed():
    parameters = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.zeros(3))]
    vector = ParameterVector(parameters)
    assert vector.read().tolist() == [1, 1, 1, 1, 0, 0, 0]
    vector.add(torch.arange(7.0))
    assert parameters[0].tolist() == [[1, 2], [3, 4]]
    vector.write(torch.zeros(7))
    assert vector.read().tolist() == [0] * 7


def test_half_and_double_precision_are_kept():
    half = [nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), nn.Parameter(torch.ones(2))]
    vector = ParameterVector(half)
    assert vector.read().dtype == torch.float32
    vector.add(torch.full((4,), 0.5))
    assert [one.dtype for one in half] == [torch.bfloat16, torch.float32]
    assert vector.read().tolist() == [1.5] * 4
    double = nn.Parameter(torch.full((2,), 1 + 1e-12, dtype=torch.float64))
    vector = ParameterVector([double])
    vector.write(vector.read())
    assert double.tolist() == [1 + 1e-12] * 2


def test_a_vector_does_not_depend_on_the_default_type():
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert ParameterVector([nn.Parameter(torch.ones(2))]).read().dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_complex_parameters_are_refused():
    with pytest.raises(UsageError, match='complex parameters need sync="step"'):
        ParameterVector([nn.Parameter(torch.ones(2, dtype=torch.complex64))])


def test_a_digest_tells_different_parameters_apart():
    ones, others = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    assert ParameterVector([ones]).digest() == ParameterVector([others]).digest()
    others.data[3] += 1e-6
    assert ParameterVector([ones]).digest() != ParameterVector([others]).digest()
