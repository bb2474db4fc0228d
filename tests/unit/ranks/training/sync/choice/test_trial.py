"""The times of the first steps of a training, from which mode auto chooses."""

import pytest
import torch
from farandole.ranks.training.sync.choice.trial import STEPS, _conditions, overheads
from farandole.ranks.training.sync.modes import PAYLOADS


def _times(step: float, average: float, computed: float) -> dict[str, object]:
    first = 100.0  # the first steps allocate memory
    return {
        "steps": [first] * 10 + [step] * (STEPS - 11),
        "averages": [first] * 10 + [average] * (STEPS - 10),
        "overheads": dict.fromkeys(PAYLOADS, (computed / 2, computed / 4, computed / 4)),
        "latency": step / 100,  # the last rank to a sum waits only for the network
    }


def test_the_conditions_are_those_of_the_slowest_rank() -> None:
    # The faster rank also waits for the slower one.
    found = _conditions([_times(0.05, 0.46, 0.01), _times(0.1, 0.41, 0.02)])
    assert (found.ranks, found.step, found.overheads["int4"].total) == (2, 0.1, 0.02)
    # What a rank computes for an average is not time on the network.
    assert found.all_reduce == pytest.approx(0.4)
    assert found.latency == 0.05 / 100


def test_an_average_that_takes_no_longer_than_its_computation_costs_no_time_on_the_network() -> None:
    assert _conditions([_times(0.1, 0.01, 0.02)]).all_reduce == 0


def test_the_computation_for_an_average_is_timed_without_a_change_of_the_parameters() -> None:
    parameters = torch.arange(1000.0)
    found = overheads(parameters)
    assert set(found) == set(PAYLOADS)
    assert all(0 < seconds < 10 for overhead in found.values() for seconds in overhead)
    assert parameters.tolist() == list(range(1000))
