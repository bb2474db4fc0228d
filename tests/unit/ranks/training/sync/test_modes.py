"""Tests that mistakes in the argument ``sync`` of ``fd.prepare`` are named, with a remedy."""

from typing import Any

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.sync.modes import Local, Step, Sync, parsed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRAINED_ALONE = (fd.sync.local(), fd.sync.asynchronous(), fd.sync.auto())


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("mode", ["local", "asynchronous"])
@pytest.mark.parametrize("every", [0, -1, 1.5, "16", True, None])
def test_an_interval_is_a_whole_number_of_steps(mode: str, every: Any) -> None:
    with pytest.raises(
        UsageError, match=rf"fd\.sync\.{mode}: every is {every!r}; it must be a whole number of at least 1"
    ):
        getattr(fd.sync, mode)(every=every)


@pytest.mark.parametrize("mode", ["local", "asynchronous"])
def test_an_unknown_payload_gets_a_suggestion(mode: str) -> None:
    says = rf"fd\.sync\.{mode}: payload is 'in8'; it must be one of: fp32, fp16, int8, int4\. Did you mean 'int8'\?"
    with pytest.raises(UsageError, match=says):
        getattr(fd.sync, mode)(payload="in8")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("local", {"every": 4, "delay": 4}, "delay is 4 with every=4; .* delay must be less than every"),
        ("local", {"delay": -1}, "delay is -1; it must be a whole number of at least 0"),
        ("local", {"warmup": -1}, "warmup is -1; it must be a whole number of at least 0"),
        ("local", {"schedule": "cubic"}, "schedule is 'cubic'; it must be one of: fixed, quadratic"),
        ("asynchronous", {"quorum": 0}, "quorum is 0; it must be a whole number of at least 1"),
        ("asynchronous", {"grace": -1}, "grace is -1; it must be a number of seconds, 0 or more"),
        ("asynchronous", {"grace": float("nan")}, "grace is nan; it must be a number of seconds"),
        ("asynchronous", {"grace": "1 s"}, "grace is '1 s'; it must be a number of seconds"),
        ("compressed", {"method": "fp8"}, "method is 'fp8'; it must be one of: fp16, powersgd"),
        ("compressed", {"rank": 0}, "rank is 0; it must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_of_a_mode_are_named(name: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"fd\.sync\.{name}: {says}"):
        getattr(fd.sync, name)(**arguments)


@pytest.mark.parametrize(("every", "delay"), [(1, 0), (2, 1), (7, 6), (64, 6)])
def test_an_average_is_used_before_the_next_one_begins(every: int, delay: int) -> None:
    assert fd.sync.local(every=every) == Local(every=every, delay=delay)


@pytest.mark.parametrize("sync", [None, "local", 16, "Step"])
def test_only_step_is_given_as_text(sync: Any) -> None:
    assert parsed("step") == Step()
    with pytest.raises(UsageError, match=rf'sync is {sync!r}; it must be "step", fd\.sync\.auto\(\), fd\.sync\.local'):
        fd.prepare(nn.Linear(1, 1), sync=sync)


def test_a_mode_that_was_not_called_is_named() -> None:
    with pytest.raises(UsageError, match=r"Call the function, e\.g\. sync=fd\.sync\.local\(every=16\)"):
        fd.prepare(nn.Linear(1, 1), sync=fd.sync.local)


@pytest.mark.parametrize("sync", TRAINED_ALONE, ids=str)
def test_a_mode_that_averages_between_steps_needs_an_optimizer(sync: Sync) -> None:
    with pytest.raises(UsageError, match=rf"fd\.sync\.{sync.name} averages between the steps of an optimizer; pass"):
        fd.prepare(nn.Linear(1, 1), sync=sync)


@pytest.mark.parametrize("sync", TRAINED_ALONE, ids=str)
def test_a_model_or_an_optimizer_that_averages_in_each_step_is_refused(sync: Sync) -> None:
    model = nn.Linear(1, 1)
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    with pytest.raises(UsageError, match="the model is wrapped in DistributedDataParallel.*; pass the model itself"):
        fd.prepare(wrapped, _sgd(model), sync=sync)
    optimizer: Any = _sgd(model)
    optimizer._allreduce_delay = {}  # as the optimizers of Horovod have
    with pytest.raises(UsageError, match="Horovod averages the gradients of this optimizer.*; create a new optimizer"):
        fd.prepare(model, optimizer, sync=sync)


def test_a_parameter_server_needs_two_ranks() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(UsageError, match=r"fd\.sync\.asynchronous needs two ranks or more; start more workers"):
        fd.prepare(model, _sgd(model), sync=fd.sync.asynchronous())


@pytest.mark.parametrize("sync", ["step", fd.sync.local(), fd.sync.auto(), fd.sync.compressed()], ids=str)
def test_one_rank_trains_in_any_other_mode_as_without_it(sync: Any) -> None:
    model = nn.Linear(1, 1)
    optimizer = _sgd(model)
    assert fd.prepare(model, optimizer, sync=sync)[:2] == (model, optimizer)
