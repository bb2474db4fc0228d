"""Script for one rank in the contract test of meshes. It trains every case and saves losses, parameters and sizes."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from farandole.ranks.metrics import reporter, usage
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from tests.contract.train_on_ranks import end_process, form_world, leave_world

STEPS = 20
WORDS, WIDTH, LENGTH = 31, 12, 5
EVEN = [{"shard": 4}, {"data": 2, "shard": 2}, {"data": 4}]
MESHES = {
    "shard": {"shard": 4},
    "data-shard": {"data": 2, "shard": -1},
    "tensor": {"tensor": 4},
    "shard-tensor": {"shard": 2, "tensor": 2},
    "deferred-shard": {"shard": 4},
    "deferred-shard-tensor": {"shard": 2, "tensor": 2},
    "recompute-shard": {"shard": 4},
    "recompute-tensor": {"tensor": 4},
    "compile-shard": {"shard": 4},
}
KINDS = [("sgd", "float32"), ("sgd", "float64"), ("adam", "float64")]
LOW_PRECISION = ("sgd", "bfloat16")
QUICK = [("recompute-shard", *KINDS[1]), ("deferred-shard-tensor", *KINDS[2]), ("shard", *LOW_PRECISION)]
"""The cases of each change. A case is a mesh, an optimizer and a dtype."""
CASES = [
    *((mesh, *kind) for mesh in MESHES if mesh.split("-")[0] not in {"recompute", "compile"} for kind in KINDS),
    *((mesh, *KINDS[1]) for mesh in ("recompute-tensor", "compile-shard")),
    *((mesh, *LOW_PRECISION) for mesh in ("data-shard", "shard-tensor")),
]


class Scale(nn.Module):
    """A factor that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.factor.fill_(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear2(torch.tanh(self.linear1(self.norm(x))))


class Model(nn.Module):
    """A language model whose embedding is tied to its head, with a frozen parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)
        self.head.weight = self.embedding.weight
        self.head.bias.requires_grad_(False)
        self.scale = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.scale(self.head(x))


def plan() -> dict[str, Any]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    return {"blocks.*.linear1": ColwiseParallel(), "blocks.*.linear2": RowwiseParallel()}


def train(mesh: str, name: str, dtype: str) -> dict[str, Any]:
    how: dict[str, Any] = {"mesh": MESHES[mesh], "recompute": mesh.startswith("recompute")} if fd.size() > 1 else {}
    if how and "tensor" in mesh:
        how["plan"] = plan()
    torch.manual_seed(fd.rank())  # only fd.prepare makes the ranks equal
    deferred, low = mesh.startswith("deferred"), dtype == "bfloat16"
    with fd.deferred() if deferred else nullcontext():
        model = Model().to(torch.float32 if low else getattr(torch, dtype))
    if low:
        how["precision"] = torch.bfloat16
    if (deferred or low) and fd.size() == 1:
        how["mesh"] = {"shard": 1}
    kind, options = {"sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), "adam": (torch.optim.Adam, {"lr": 0.01})}[
        name
    ]
    optimizer = kind(model.parameters(), **options)
    if fd.rank() == 0 and not deferred:  # only rank 0 has optimizer state, as after loading a checkpoint on rank 0
        model(torch.zeros(1, 1, dtype=torch.long)).mean().backward()
        optimizer.step()
    generator = torch.Generator().manual_seed(7)
    samples = torch.randint(WORDS, (70, LENGTH + 1), generator=generator)
    # The last batch has 6 samples, so that the shares of four ranks are uneven.
    loader = DataLoader(TensorDataset(samples), batch_size=16, shuffle=True)
    model, optimizer, loader = fd.prepare(model, optimizer, loader, **how)
    forward = torch.compile(model, backend="aot_eager") if mesh.startswith("compile") and fd.size() > 1 else model
    losses = []
    while len(losses) < STEPS:
        for (batch,) in loader:
            if len(losses) % 3 != 1:  # otherwise gradients accumulate
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(forward(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            norm = fd.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append((len(batch), loss.item()))
    if fd.size() > 1:
        refuses_to_save(model)
    found = {key: whole(value) for key, value in model.state_dict().items()}
    return {"losses": losses[:STEPS], "norm": norm, "model": found, "bytes": _bytes(model, optimizer)}


def refuses_to_save(model: nn.Module) -> None:
    try:
        fd.save_model(model, "shards")
    except ValueError as error:
        assert "divided by a mesh" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a sharded model was accepted")


def whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The bytes of parameters, gradients and optimizer state on this rank."""
    own = [*model.parameters(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]
    own += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return sum(_local(tensor).nbytes for tensor in own)


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


class Even(nn.Module):
    """A model whose parameters all ranks share evenly, with units and a layer outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Sent(TorchDispatchMode):
    """Counts the bytes that this rank sends in the collectives of FSDP, as rings."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.copies, self.bytes = copies, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name in {"c10d::_allgather_base_", "c10d::_reduce_scatter_base_"}:
            self.bytes += abs(args[0].nbytes - args[1].nbytes)
        elif name == "c10d::allreduce_":
            self.bytes += 2 * (self.copies - 1) / self.copies * sum(tensor.nbytes for tensor in args[0])
        return func(*args, **(kwargs or {}))


def memory(shape: dict[str, int], precision: torch.dtype | None) -> dict[str, Any]:
    """Return the figures of a rank's memory in a run, and what they should be."""
    reporter.current().begin("a run")
    model = Even()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, _ = fd.prepare(model, optimizer, mesh=shape, precision=precision)
    with Sent(shape.get("data", 1)) as sent:
        model(torch.ones(2, 8)).mean().backward()
    optimizer.step()
    figures = dict(usage.model_memory())
    reporter.current().end()
    return {"figures": figures, "sent": sent.bytes, "bytes": _bytes(model, optimizer)}


def main(folder: Path, cases: list[tuple[str, str, str]]) -> None:
    torch.set_num_threads(1)
    form_world()
    if fd.size() > 1:
        found = [memory(shape, precision) for shape in EVEN for precision in (None, torch.bfloat16)]
        torch.save(found, folder / f"memory.{fd.rank()}.pt")
    for case in cases:
        torch.save(train(*case), folder / f"{'-'.join(case)}.{fd.size()}.{fd.rank()}.pt")
    leave_world()


if __name__ == "__main__":
    main(Path(sys.argv[1]), {"quick": QUICK, "all": CASES}[sys.argv[2]])
    end_process()
