"""What is stored of a version besides its files."""

import numpy as np
import pytest
from farandole.exceptions import UsageError
from farandole.models.model import NUMPY_TYPES, checked_metrics


def test_metrics_become_numbers_of_python():
    metrics = {"accuracy": np.float64(0.5), "epochs": 3, np.str_("rows"): np.int64(7), "loss": np.array([0.25])}
    found = checked_metrics(metrics)
    assert repr(found) == "{'accuracy': 0.5, 'epochs': 3, 'rows': 7, 'loss': 0.25}"


@pytest.mark.parametrize("value", [float("nan"), np.float64("inf"), np.ones(2), True, np.True_, None, "0.5"])
def test_other_metrics_are_refused(value):
    with pytest.raises(UsageError, match=r"^the metric 'a' is .*; metrics are finite numbers with names$"):
        checked_metrics({"a": value})


def test_names_of_metrics_are_texts():
    with pytest.raises(UsageError, match="the metric 1 is 0.5"):
        checked_metrics({1: 0.5})


def test_each_datatype_is_one_of_numpy():
    assert {np.dtype(name).name for name in NUMPY_TYPES.values()} == set(NUMPY_TYPES.values())
