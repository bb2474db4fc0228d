"""Script for one rank in the contract test of checkpoints of a sharded model. It trains, and saves the whole model."""

import json
import sys
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.contract.mesh_on_ranks import WORDS, Model, plan, whole
from tests.contract.train_on_ranks import end_process, form_world, leave_world

SAVED, STEPS = 3, 7
"""The step of the checkpoint, which is in the middle of an epoch, and the last step."""


def train(mesh: dict[str, int] | None, folder: Path, resume: str, last: int) -> dict[str, torch.Tensor]:
    how: dict[str, Any] = {} if mesh is None else {"mesh": mesh}
    if mesh is not None and "tensor" in mesh:
        how["plan"] = plan()
    torch.manual_seed(0)
    model = Model().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    samples = torch.randint(WORDS, (70, 6), generator=torch.Generator().manual_seed(7))
    loader = DataLoader(TensorDataset(samples), batch_size=16, shuffle=True)
    model, optimizer, loader = fd.prepare(model, optimizer, loader, **how)
    state = fd.state(model, optimizer, loader, step=0)
    checkpoints = fd.checkpoint(state, every=SAVED, folder=folder / "own", resume=folder / resume if resume else None)
    assert checkpoints.resumed == (SAVED if resume else None)
    while state.step < last:
        for (batch,) in loader:
            step(model, optimizer, batch)
            state.step += 1
            state.commit()
            if state.step == last:
                break
    checkpoints.wait()
    return rolled_back(model, optimizer, state, samples)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()


def rolled_back(model: nn.Module, optimizer: Any, state: Any, samples: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the whole model, to which the state returns from a further step."""
    found = {name: whole(value).clone() for name, value in model.state_dict().items()}
    step(model, optimizer, samples[:4])
    assert any(not torch.equal(whole(value), found[name]) for name, value in model.state_dict().items())
    state.restore()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(whole(value), found[name], rtol=0, atol=0)
    return found


if __name__ == "__main__":
    folder, mesh, resume, last = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    form_world()
    torch.save(train(mesh, folder, resume, last), folder / f"model.{fd.size()}.{fd.rank()}.pt")
    leave_world()
    end_process()
