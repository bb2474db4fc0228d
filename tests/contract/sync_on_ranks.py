"""Script for one rank in the contract test of fd.sync. It trains every case and saves the parameters."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.state.state import State
from farandole.ranks.training.sync.modes import Sync
from farandole.ranks.world import collectives
from torch import nn
from torch.utils.data import DataLoader

from tests.contract.train_on_ranks import data, end_process, form_world, leave_world, model_for

EPOCHS = 3
local = functools.partial(fd.sync.local, warmup=0)
"""The mode ``local`` without its warm-up, which would be as long as these trainings."""
SAMPLES = 70
LOSE_SERVER = "--lose-server"
"""The argument with which only the loss of the parameter server is tested."""
LOSE_RANK = "--lose-rank"
"""The argument with which only the loss of the last rank during an average is tested."""
STEPS_BEFORE_KILL = 20
LOST_SECONDS = 30
EXACT: dict[str, Sync | str] = {
    "step": "step",
    "every-step": local(every=1, payload="fp32"),
    "warmup": fd.sync.local(every=50, warmup=100, payload="fp32"),
}
"""Modes that give the same result as a step on the whole batch, with stochastic gradient descent."""
CLOSE: dict[str, Sync | str] = {
    **{
        f"{payload}-{delay}": local(every=4, delay=delay, payload=payload)
        for payload in ("fp32", "fp16", "int8", "int4")
        for delay in (0, 3)
    },
    "seldom": local(every=1000),
    "compressed": fd.sync.compressed("fp16"),
}
"""Modes that train a model that is equal on all ranks at the end of each epoch."""


def train(mode: Sync | str) -> dict[str, torch.Tensor]:
    model = model_for(fd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    loader = DataLoader(data(SAMPLES), batch_size=16, shuffle=True)
    model, optimizer, loader = fd.prepare(model, optimizer, loader, sync=mode)
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def no_change_is_lost(payload: str) -> None:
    """Move a parameter by known amounts on each rank. After averages, it has moved by the mean of the sums."""
    parameter = nn.Parameter(torch.zeros(300))
    model = nn.ParameterList([parameter])
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    model, optimizer, _ = fd.prepare(model, optimizer, sync=local(every=3, delay=2, payload=payload))
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(300)
    for _ in range(20):
        changes = torch.randn(fd.size(), 300, generator=generator)
        parameter.grad = -changes[fd.rank()]
        optimizer.step()
        total += changes.mean(0)
    for _ in range(12):  # averages without further changes send what rounding has left behind
        parameter.grad = torch.zeros(300)
        optimizer.step()
    fd.sync.finish(optimizer)
    # Rounding of sums on their way in half precision is not known to any rank, so it is not sent again.
    torch.testing.assert_close(parameter.detach(), total, rtol=0, atol=2e-2 if payload == "fp16" else 1e-3)


def statistics_are_pooled() -> None:
    """Train a batch normalization layer on different batches. Its statistics become those of all batches together."""
    model: nn.Module = nn.Sequential(nn.BatchNorm1d(4, momentum=1.0), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model, optimizer, _ = fd.prepare(model, optimizer, sync=local(every=1000))
    batches = torch.randn(fd.size(), 1000, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2
    batches[0] += 5
    model(batches[fd.rank()]).sum().backward()
    optimizer.step()
    fd.sync.finish(optimizer)
    together = batches.flatten(0, 1)
    torch.testing.assert_close(model[0].running_mean, together.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model[0].running_var, together.var(0), rtol=1e-2, atol=1e-2)
    if fd.size() > 1:
        fd.sync.finish(optimizer, batches=[batches[fd.rank()] + 1])
        torch.testing.assert_close(model[0].running_mean, together.mean(0) + 1, rtol=1e-4, atol=1e-4)


def equal_on_all_ranks(parameters: Iterable[torch.Tensor]) -> bool:
    own = torch.cat([parameter.detach().flatten() for parameter in parameters])
    return len(set(collectives.gather_bytes(own.numpy().tobytes()))) == 1


def a_step_that_one_rank_leaves_out_counts() -> None:
    """Give one rank gradients that are too large. ``GradScaler`` leaves out its step, and no rank waits for ever."""
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    sync = local(every=2, delay=1, payload="fp32")
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
    for step in range(7):
        optimizer.zero_grad()
        scaler.scale(parameter.sum() * (fd.rank() + 1)).backward()
        if step == 3 and fd.rank() == fd.size() - 1:
            parameter.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
    fd.sync.finish(optimizer)
    assert equal_on_all_ranks([parameter])
    assert torch.isfinite(parameter).all()


def two_models_are_averaged() -> None:
    """Train two models in one loop. The end of the epoch makes both equal."""
    models, optimizers = [], []
    loader = DataLoader(data(SAMPLES), batch_size=16)
    for number in range(2):
        model = model_for(number)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        sync = local(every=3, delay=2, payload="fp32")
        model, optimizer, prepared = fd.prepare(model, optimizer, loader if number else None, sync=sync)
        models.append(model)
        optimizers.append(optimizer)
    for x, y in prepared:
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert all(equal_on_all_ranks(model.parameters()) for model in models)


def different_models_are_refused() -> None:
    """Create another model, and then other parameters, on one rank. All ranks get the error."""
    last = fd.rank() == fd.size() - 1
    model: nn.Module = nn.Linear(4, 3 if last else 2)
    with pytest.raises(UsageError, match=f"rank {fd.size() - 1} has another model than rank 0"):
        fd.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for sync in (local(), fd.sync.asynchronous()):
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, _ = fd.prepare(model, optimizer, sync=sync)
        if last:
            nn.init.zeros_(model.weight)
        model(torch.ones(4)).sum().backward()
        with pytest.raises(UsageError, match="the ranks have different parameters"):
            optimizer.step()


def wrappers_are_refused_after_prepare() -> None:
    """Wrap the model or the optimizer after ``fd.prepare``, as examples of DDP and Horovod do."""
    for sync in (local(), fd.sync.asynchronous(), fd.sync.auto()):
        model: nn.Module = nn.Linear(4, 2)
        model, optimizer, _ = fd.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), sync=sync)
        if context.backend() == "torch":
            with pytest.raises(UsageError, match="leave out DistributedDataParallel"):
                nn.parallel.DistributedDataParallel(model)
        else:
            import horovod.torch as hvd

            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            model(torch.ones(4)).sum().backward()
            with pytest.raises(UsageError, match="take the steps with the optimizer that fd.prepare has returned"):
                optimizer.step()
            optimizer.synchronize()  # Horovod has begun to average the gradients


def the_schedule_is_that_of_rank_0() -> None:
    """Give each rank its own learning rate. The interval between averages is the same on all ranks."""
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    sync = local(every=2, delay=1, schedule="quadratic")
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
    for step in range(30):
        optimizer.param_groups[0]["lr"] = 1 / (1 + step * (1 + fd.rank()))
        parameter.grad = torch.ones(4)
        optimizer.step()
    fd.sync.finish(optimizer)
    assert equal_on_all_ranks([parameter])


def a_training_resumes_between_two_averages(folder: Path) -> None:
    """Save a checkpoint one step after an average, and continue from it: all ranks begin with that of rank 0."""

    def prepared() -> tuple[nn.Parameter, torch.optim.Optimizer, State]:
        parameter = nn.Parameter(torch.zeros(4))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        sync = local(every=4, delay=0, payload="fp32")
        model, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
        return parameter, optimizer, fd.state(model, optimizer)

    def train(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            parameter.grad = torch.full((4,), -1.0 - fd.rank())
            optimizer.step()

    mean = (fd.size() + 1) / 2
    parameter, optimizer, state = prepared()
    checkpoints = fd.checkpoint(state, folder=folder)
    train(parameter, optimizer, 5)
    assert parameter.tolist() == [4 * mean + 1 + fd.rank()] * 4
    checkpoints.save()
    parameter, optimizer, state = prepared()
    fd.checkpoint(state, folder=folder, resume=folder)
    assert parameter.tolist() == [4 * mean + 1] * 4
    train(parameter, optimizer, 6)
    fd.sync.finish(optimizer)
    assert parameter.tolist() == [10 * mean + 1] * 4


def low_rank_gradients_train_all_ranks_alike() -> None:
    """Train a model of several megabytes with PowerSGD on the torch backend. Horovod does not have it."""
    model: nn.Module = nn.Sequential(nn.Linear(4, 1000), nn.Linear(1000, 1000), nn.Linear(1000, 1))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if context.backend() != "torch":
        with pytest.raises(UsageError, match="needs the torch backend"):
            fd.prepare(model, optimizer, sync=fd.sync.compressed("powersgd"))
        return
    model, optimizer, _ = fd.prepare(model, optimizer, sync=fd.sync.compressed("powersgd"))
    for step in range(6):  # the first two steps average the whole gradients
        optimizer.zero_grad()
        model(torch.full((2, 4), 1.0 + fd.rank() + step)).sum().backward()
        optimizer.step()
    assert equal_on_all_ranks(model.parameters())
    assert not any(map(torch.equal, before, model.parameters()))


def asynchronous_ranks_learn() -> None:
    """Train towards the mean of the ranks' goals without waiting. Each rank comes close to it."""
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=0.05)
    sync = fd.sync.asynchronous(every=2, payload="fp32")
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
    for _ in range(200):
        parameter.grad = parameter.detach() - fd.rank()
        optimizer.step()
        # On a busy machine, a rank that is left alone would train towards its own goal.
        collectives.gather_bytes(b"")
    fd.sync.finish(optimizer)
    torch.testing.assert_close(parameter.detach(), torch.full((4,), (fd.size() - 1) / 2), rtol=0, atol=0.3)


def auto_chooses_the_same_mode_on_all_ranks() -> None:
    """Train for more steps than the trial. The parameters are then equal on all ranks and include all gradients.

    The tolerance allows for the rounding of the mode, which depends on the machine. A missing step would change the
    parameters by at least 0.05.
    """
    parameter = nn.Parameter(torch.zeros(1000))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=fd.sync.auto())
    for _ in range(50):
        parameter.grad = torch.full((1000,), float(fd.rank()))
        optimizer.step()
    fd.sync.finish(optimizer)
    assert equal_on_all_ranks([parameter])
    mean = -5.0 * (fd.size() - 1) / 2
    torch.testing.assert_close(parameter.detach(), torch.full((1000,), mean), rtol=0, atol=0.01)


def survives_the_parameter_server(folder: Path) -> None:
    """Kill rank 0, which holds the parameter server, after an exchange. Write the error that the other ranks get."""
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    sync = fd.sync.asynchronous(every=2, payload="fp32")
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
    for _ in range(STEPS_BEFORE_KILL):
        take_step(parameter, optimizer)
    collectives.gather_bytes(b"")  # all ranks have exchanged changes before one is lost
    if fd.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(ConnectionError) as error:
        step_until(parameter, optimizer, time.monotonic() + LOST_SECONDS)
    assert torch.isfinite(parameter).all()
    with pytest.raises(ConnectionError):  # later exchanges fail at once, too
        fd.sync.finish(optimizer)
    (folder / f"lost.{fd.rank()}").write_text(f"{error.type.__name__}: {error.value}")


def survives_a_rank_that_is_lost_in_an_average(folder: Path) -> None:
    """Kill the last rank while the others wait for its part of an average. Write the error that the others get."""
    parameter = nn.Parameter(torch.zeros(100_000))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    sync = local(every=2, delay=1, payload="fp32")
    _, optimizer, _ = fd.prepare(nn.ParameterList([parameter]), optimizer, sync=sync)
    take_step(parameter, optimizer)
    if fd.rank() == fd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError) as error:
        step_until(parameter, optimizer, time.monotonic() + LOST_SECONDS)
    assert torch.isfinite(parameter).all()
    (folder / f"lost.{fd.rank()}").write_text(f"{error.type.__name__}: {error.value}")


def take_step(parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    parameter.grad = parameter.detach() - fd.rank()
    optimizer.step()


def step_until(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, deadline: float) -> None:
    while time.monotonic() < deadline:
        take_step(parameter, optimizer)


CHECKS = (
    a_step_that_one_rank_leaves_out_counts,
    two_models_are_averaged,
    different_models_are_refused,
    wrappers_are_refused_after_prepare,
    the_schedule_is_that_of_rank_0,
    low_rank_gradients_train_all_ranks_alike,
    asynchronous_ranks_learn,
    auto_chooses_the_same_mode_on_all_ranks,
)


def lose_server(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    survives_the_parameter_server(folder)


def lose_rank(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    survives_a_rank_that_is_lost_in_an_average(folder)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    for name, mode in {**EXACT, **CLOSE}.items():
        torch.save(train(mode), folder / f"{name}.{fd.rank()}.pt")
    for payload in ("fp32", "fp16", "int8", "int4"):
        no_change_is_lost(payload)
    statistics_are_pooled()
    if fd.size() > 1:
        for check in CHECKS:
            check()
        a_training_resumes_between_two_averages(folder / "checkpoints")
    leave_world()


if __name__ == "__main__":
    run = {LOSE_SERVER: lose_server, LOSE_RANK: lose_rank}.get(sys.argv[-1], main)
    run(Path(sys.argv[1]))
    end_process()
