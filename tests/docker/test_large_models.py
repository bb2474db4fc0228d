"""A model that does not fit into the memory of one worker trains on four workers, which share it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError
from tests.docker.conftest import WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.kernel import RemoteKernel
    from tests.docker.stack import Stack

# Four workers compute with five gigabytes for minutes. tests/contract/test_mesh.py trains small models on meshes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]
USER = "gulliver"
CELL_SECONDS = 600.0
LIMIT = 2 << 30
"""The memory of a worker with the profile "medium", in bytes."""
STATE = LIMIT * 5 // 2
"""The parameters, gradients and optimizer state of the model, in bytes."""
STEPS = 3
START = f"%load_ext farandole\n%cluster start --workers {WORKERS} --profile medium --backend torch --name large"
TRAIN = f"""%%distributed_train --output run
from contextlib import nullcontext

import farandole as fd
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

MESH, WIDTH = {{mesh!r}}, 2048
layers = -(-{STATE} // (16 * WIDTH**2))  # Adam has four numbers of four bytes for each parameter
torch.manual_seed(0)
with fd.deferred() if MESH else nullcontext():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randn({8 * STEPS}, WIDTH)), batch_size=8)
model, optimizer, loader = fd.prepare(model, optimizer, loader, mesh=MESH)
for step, (x,) in enumerate(loader):
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    fd.report(step=step, loss=loss)
tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
tensors += [value for state in optimizer.state.values() for value in state.values()]
own = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
fd.result({{{{"bytes": sum(tensor.nbytes for tensor in own), "steps": step + 1, "loss": loss.item()}}}})
"""
RESULTS = "import json; print(json.dumps([*run.results.values()]))"


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Iterator[RemoteKernel]:
    """The kernel of a user with four workers that have a memory limit."""
    with stack.kernel(USER, path="large.ipynb") as kernel:
        kernel.execute(START, deadline=CELL_SECONDS)
        yield kernel
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


def test_a_model_of_two_and_a_half_times_the_memory_of_a_worker_trains_on_four(
    stack: Stack, kernel: RemoteKernel
) -> None:
    workers = [name for name in stack.containers() if "large-w" in name]
    assert [stack.inspect(name)["HostConfig"]["Memory"] for name in workers] == [LIMIT] * WORKERS
    kernel.execute(TRAIN.format(mesh={"shard": WORKERS}), deadline=CELL_SECONDS)
    results = json.loads(kernel.execute(RESULTS, deadline=CELL_SECONDS).splitlines()[-1])
    assert sum(result["bytes"] for result in results) >= STATE
    assert [result["steps"] for result in results] == [STEPS] * WORKERS
    assert all(result["loss"] > 0 for result in results)


def test_without_a_mesh_its_ranks_are_killed_and_the_message_names_one_that_fits(kernel: RemoteKernel) -> None:
    # After the first test, the ranks still have its shares, and may be killed before the cell calls fd.prepare.
    with pytest.raises(
        CellError, match=r"its process is gone, killed by the host because it was out of memory"
    ) as caught:
        kernel.execute(TRAIN.format(mesh=None), deadline=CELL_SECONDS)
    assert re.search(rf"""mesh\W+["']shard["']: {WORKERS}""", str(caught.value)), caught.value
