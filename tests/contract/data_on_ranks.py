"""Script for one rank in the contract test of data sets. It reads a `Task` as JSON."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from tests.contract.train_on_ranks import end_process, form_world, leave_world


@dataclass(frozen=True, kw_only=True)
class Task:
    table: str
    kind: str
    """How the table is read: as a ``table``, or as a ``stream`` of its rows."""
    folder: str
    out: str
    until: int
    resume: str | None = None


class RowStream(IterableDataset[Any]):
    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        for index in torch.randperm(len(self.data)).tolist():
            yield self.data[index]


def batches_of(task: Task) -> DataLoader[Any]:
    data = fd.dataset(task.table)
    if task.kind == "table":
        return DataLoader(data, batch_size=8, shuffle=True)
    return DataLoader(RowStream(data), batch_size=8, num_workers=1)


def main(task: Task) -> None:
    torch.set_num_threads(1)
    form_world()
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    model, optimizer, loader = fd.prepare(model, optimizer, batches_of(task))
    state = fd.state(model, optimizer, loader, epoch=0, step=0)
    made = fd.checkpoint(state, every=1, folder=task.folder, resume=task.resume)
    state.on_commit(lambda _state: made.wait())
    (Path(task.out) / f"{fd.rank()}.json").write_text(json.dumps(train(state, until=task.until)))
    leave_world()


def train(state: Any, *, until: int) -> list[Any]:
    """Train until the step ``until``. Return the epoch and this rank's samples for each step."""
    seen = []
    for epoch in range(state.epoch, 2):
        state.epoch = epoch
        for batch in state.loader:
            state.optimizer.zero_grad()
            state.model(batch["x"]).square().mean().backward()
            state.optimizer.step()
            state.step += 1
            seen.append([epoch, batch["id"].tolist()])
            state.commit()
            if state.step == until:
                return seen
    return seen


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
    end_process()
