"""Script for one rank in the contract test of fd.prepare. It trains every case and saves the parameters."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import farandole as fd
import horovod.torch as hvd
import torch
import torch.distributed as dist
from farandole.ranks import context
from farandole.ranks.world import collectives
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Loss = Callable[[], torch.Tensor]
Step = Callable[[Loss, nn.Module, torch.optim.Optimizer], None]
STEPS = 20
BATCH = 16
CASES = [
    *[(name, samples) for name in ("sgd", "adamw") for samples in (64, 66, 70)],
    *[(name, 70) for name in ("clip", "scaler", "accumulate", "again")],
]
"""Name and number of samples of each case.

With batches of 16, the last batch has 16, 2 or 6 samples, so the shares of the ranks are equal, partly empty or uneven.
"""


def data(samples: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, 6, generator=generator)
    return TensorDataset(x, (x.sum(1) > 0).long())


def optimizer_for(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name in {"sgd", "clip", "accumulate"}:
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def model_for(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.Linear(4, 2))
    model[2].bias.requires_grad_(False)
    model.register_buffer("note", torch.full((3,), float(seed)))
    return model


def endless(loader: DataLoader) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from loader


def train(name: str, samples: int) -> dict[str, torch.Tensor]:
    # Each rank starts with different values, which only the broadcast in fd.prepare makes equal.
    model = model_for(fd.rank())
    optimizer = optimizer_for(name, model)
    if fd.rank() == 0:  # only rank 0 has optimizer state, as after loading a checkpoint on rank 0
        warm_up(model, optimizer)
    loader = DataLoader(data(samples), batch_size=BATCH, shuffle=True)
    # An earlier cell has used the model, and its graph must not keep Horovod's hooks.
    kept = model(torch.zeros(1, 6))
    model, optimizer, loader = fd.prepare(model, optimizer, loader)
    train_on(model, optimizer, loader, STEP.get(name, plain_step)())
    if name == "again":  # as if a cell runs twice and creates a new optimizer for the same model
        model, other, _ = fd.prepare(model, optimizer_for(name, model))
        train_on(model, other, loader, plain_step())
        train_on(model, optimizer, loader, plain_step())
    assert kept.grad_fn is not None
    return dict(model.state_dict())


def train_on(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, step: Step) -> None:
    for _, (x, y) in zip(range(STEPS), endless(loader), strict=False):
        optimizer.zero_grad()
        step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y), model, optimizer)


def plain_step() -> Step:
    def step(loss: Loss, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        loss().backward()
        optimizer.step()

    return step


def clipped_step() -> Step:
    def step(loss: Loss, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()

    return step


def scaled_step() -> Step:
    """Return a step that follows torch's recipe for mixed precision with gradient clipping."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=3)

    def step(loss: Loss, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        scaler.scale(loss()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()

    return step


def accumulating_step() -> Step:
    def step(loss: Loss, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(2):
            loss().backward()
        optimizer.step()

    return step


STEP = {"clip": clipped_step, "scaler": scaled_step, "accumulate": accumulating_step}


def warm_up(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = data(8).tensors
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    for case in CASES:
        torch.save(train(*case), folder / f"{'-'.join(map(str, case))}.{fd.rank()}.pt")
    pushed = collectives.broadcast_bytes(b"pushed" if fd.rank() == 1 else b"", root=1 % fd.size())
    assert pushed == (b"pushed" if fd.size() > 1 else b"")
    if context.backend() == "horovod":
        refuses_bfloat16()
    leave_world()


def form_world() -> None:
    if context.backend() == "torch":
        dist.init_process_group("gloo")
    elif context.backend() == "horovod":
        hvd.init()


def leave_world() -> None:
    if context.backend() == "torch":
        dist.destroy_process_group()
    elif context.backend() == "horovod":
        hvd.shutdown()


def end_process() -> None:
    """Exit without Python's finalization, which once aborted a rank after the rank's work was done.

    The cause has not been confirmed. A thread of Gloo may have released a tensor of a wrapped model at that moment.
    """
    sys.stdout.flush()
    os._exit(0)


def refuses_bfloat16() -> None:
    try:
        fd.prepare(nn.Linear(2, 2).bfloat16())
    except ValueError as error:
        assert "'weight' is bfloat16" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a bfloat16 model was accepted")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end_process()
