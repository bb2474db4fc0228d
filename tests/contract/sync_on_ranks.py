"""Script for one rank in the contract test of fd.sync. It trains every case and saves the parameters."""

from __future__ import annotations

import sys
from pathlib import Path

import farandole as fd
import torch
from farandole.ranks.training.sync.modes import Sync
from torch import nn
from torch.utils.data import DataLoader

from tests.contract.train_on_ranks import data, end_process, form_world, leave_world, model_for

EPOCHS = 3
SAMPLES = 70
EXACT: dict[str, Sync | str] = {
    "step": "step",
    "every-step": fd.sync.local(every=1, payload="fp32"),
    "warmup": fd.sync.local(every=50, warmup=100, payload="fp32"),
}
"""Modes that give the same result as a step on the whole batch, with stochastic gradient descent."""
CLOSE: dict[str, Sync | str] = {
    **{
        f"{payload}-{delay}": fd.sync.local(every=4, delay=delay, payload=payload)
        for payload in ("fp32", "fp16", "int8", "int4")
        for delay in (0, 3)
    },
    "seldom": fd.sync.local(every=1000),
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
    model, optimizer, _ = fd.prepare(model, optimizer, sync=fd.sync.local(every=3, delay=2, payload=payload))
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(300)
    for _ in range(20):
        changes = torch.randn(fd.size(), 300, generator=generator)
        parameter.grad = -changes[fd.rank()]
        optimizer.step()
        total += changes.mean(0)
    fd.sync.finish(optimizer)  # this sends what rounding has lost
    # Rounding of sums on their way in half precision is not known to any rank, so it is not sent again.
    torch.testing.assert_close(parameter.detach(), total, rtol=0, atol=1e-2 if payload == "fp16" else 1e-3)


def statistics_are_pooled() -> None:
    """Train a batch normalization layer on different batches. Its statistics become those of all batches together."""
    model: nn.Module = nn.Sequential(nn.BatchNorm1d(4, momentum=1.0), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model, optimizer, _ = fd.prepare(model, optimizer, sync=fd.sync.local(every=1000))
    batches = torch.randn(fd.size(), 1000, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2
    batches[0] += 5
    model(batches[fd.rank()]).sum().backward()
    optimizer.step()
    fd.sync.finish(optimizer)
    together = batches.flatten(0, 1)
    torch.testing.assert_close(model[0].running_mean, together.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model[0].running_var, together.var(0), rtol=1e-2, atol=1e-2)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    for name, mode in {**EXACT, **CLOSE}.items():
        torch.save(train(mode), folder / f"{name}.{fd.rank()}.pt")
    for payload in ("fp32", "fp16", "int8", "int4"):
        no_change_is_lost(payload)
    statistics_are_pooled()
    leave_world()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end_process()
