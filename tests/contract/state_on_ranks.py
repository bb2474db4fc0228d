"""Script for one rank in the contract test of fd.state and fd.checkpoint. It reads a `Task` as JSON."""

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from farandole.ranks import rng
from farandole.ranks.state.snapshot import copied
from farandole.ranks.state.state import State
from farandole.ranks.world import collectives
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.contract.train_on_ranks import end_process, form_world, leave_world

SAMPLES, BATCH, STEPS = 48, 8, 21


@dataclass(frozen=True, kw_only=True)
class Task:
    folder: str
    out: str
    resume: str | None = None
    steps: int = STEPS
    noise: bool = False
    """Whether to add noise from each rank's random numbers, so that the losses of the ranks differ."""


def make_state() -> State:
    torch.manual_seed(0)
    ids = torch.arange(SAMPLES)
    x = torch.randn(SAMPLES, 5)
    data = TensorDataset(ids, x, x.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    model, optimizer, loader = fd.prepare(model, optimizer, DataLoader(data, BATCH, shuffle=True))
    torch.manual_seed(100 + fd.rank())
    random.seed(100 + fd.rank())
    return fd.state(model, optimizer, loader, epoch=0, step=0)


def train(state: State, *, until: int, noise: bool) -> list[dict[str, Any]]:
    """Train until the step ``until``. Return this rank's samples and the sum of their losses for each step."""
    seen: list[dict[str, Any]] = []
    for epoch in range(state.epoch, 100):
        state.epoch = epoch
        for ids, x, y in state.loader:
            shift = random.random() + torch.rand(1) if noise else 0
            losses = (state.model(x + shift) - y).square()
            state.optimizer.zero_grad()
            losses.mean().backward()
            state.optimizer.step()
            state.step += 1
            seen.append({"epoch": epoch, "step": state.step, "ids": ids.tolist(), "loss": losses.sum().item()})
            state.commit()
            if state.step == until:
                return seen
    return seen


def share_a_state() -> None:
    """Let each rank train alone, and check that all ranks then continue from the last rank's state."""
    root = fd.size() - 1
    torch.manual_seed(fd.rank())
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16 if fd.rank() == root else torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1 / (fd.rank() + 1))
    if fd.rank() == root:  # the optimizers of the other ranks have no state yet
        model(torch.randn(4, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    state = fd.state(model, optimizer, step=fd.rank(), history=["x"] * fd.rank())
    for _ in range(fd.rank()):
        state.commit()
    drawn = rng.capture()["torch"]
    state.sync(root=root)
    assert torch.equal(rng.capture()["torch"], drawn)
    assert (state.step, state.history, state.commits) == (root, ["x"] * root, root)
    assert optimizer.param_groups[0]["lr"] == 1 / (root + 1)
    assert len(optimizer.state) == 4
    synced = copied(state.state_dict()["parts"]["model"])
    numbers = torch.cat([tensor.double().reshape(-1) for tensor in synced.values()])
    assert torch.equal(collectives.broadcast(numbers.clone(), root), numbers)
    state.step = 77
    state.restore()
    assert state.step == root


def gather() -> None:
    own = b"x" * fd.rank()
    assert collectives.gather_bytes(own) == [b"x" * rank for rank in range(fd.size())]
    assert collectives.gather_bytes(b"") == [b""] * fd.size()


def main(task: Task) -> None:
    torch.set_num_threads(1)
    form_world()
    gather()
    share_a_state()
    state = make_state()
    made = fd.checkpoint(state, every=5, folder=task.folder, resume=task.resume)
    state.on_commit(lambda _state: made.wait())  # the disk is slower than a step, which takes about a millisecond
    seen = train(state, until=task.steps, noise=task.noise)
    found = {"resumed": made.resumed, "seen": seen, "loader": state.loader.state_dict()}
    (Path(task.out) / f"{fd.rank()}.json").write_text(json.dumps(found))
    leave_world()


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
    end_process()
