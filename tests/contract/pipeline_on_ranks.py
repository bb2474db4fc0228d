"""Script for one rank in the contract test of pipelines. It trains every case and saves losses, state and outputs."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.world import collectives
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.contract.mesh_on_ranks import LENGTH, STEPS, WIDTH, WORDS, Block
from tests.contract.train_on_ranks import end_process, form_world, leave_world

BATCH, MICROBATCHES = 16, 4
SPLITS = {
    (2, "GPipe"): ["blocks.3"],
    (2, "1F1B"): ["blocks.3"],
    (2, "Interleaved1F1B"): ["blocks.5", "blocks.1", "blocks.3"],
    (4, "GPipe"): ["blocks.1", "blocks.3", "blocks.5"],
    (4, "1F1B"): ["blocks.1", "blocks.3", "blocks.5"],
}
"""The modules that begin a stage, by the number of ranks and the schedule."""
KINDS = [("sgd", "float32"), ("sgd", "float64"), ("adam", "float64")]
QUICK = [("1F1B", "tied", *KINDS[1])]
CASES = [
    *[(schedule, "plain", *kind) for schedule in ("GPipe", "1F1B") for kind in KINDS],
    *[("1F1B", variant, *KINDS[1]) for variant in ("frozen", "tied", "deferred", "deferred-tied", "batchnorm")],
]
INTERLEAVED = [("Interleaved1F1B", "plain", *KINDS[1])]
"""The cases: the schedule, a variant of the model or of its training, the optimizer and the dtype."""

Case = tuple[str, str, str, str]


class Model(nn.Module):
    """A language model with a parameter of its own, a frozen one, a skip connection and a mask of its input."""

    def __init__(self, variant: str = "plain") -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(torch.empty(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        if variant == "batchnorm":
            self.blocks[4] = Normalized()
        self.head = nn.Linear(WIDTH, WORDS)
        if variant.endswith("tied"):
            self.head.weight = self.embedding.weight
        self.head.bias.requires_grad_(False)
        self.register_buffer("factor", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.positions, std=0.5)
        self.factor.fill_(0.5)

    def forward(self, x: torch.Tensor, known: torch.Tensor | None = None) -> torch.Tensor:
        _, length = x.shape
        assert length <= LENGTH
        known = (x > 0).unsqueeze(-1) if known is None else known
        first = self.embedding(x) + self.positions[torch.arange(length, device=x.device)]
        hidden = nn.functional.dropout(first, 0.0, self.training)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head((hidden + first) * known * self.factor)


class Normalized(nn.Module):
    """Batch normalization over the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def batches() -> DataLoader:
    samples = torch.randint(WORDS, (72, LENGTH + 1), generator=torch.Generator().manual_seed(7))
    # The last batch has 8 samples.
    return DataLoader(TensorDataset(samples[:, :-1], samples[:, 1:]), batch_size=BATCH, shuffle=True)


def optimizer_for(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=0.01)


def cut(schedule: str, variant: str = "plain", dtype: str = "float64", *, split: list[str] | None = None) -> Any:
    torch.manual_seed(fd.rank())  # only fd.pipeline makes the ranks equal
    if variant.startswith("deferred"):
        with fd.deferred():
            model = Model(variant).to(getattr(torch, dtype))
    else:
        model = Model(variant).to(getattr(torch, dtype))
    split = split or SPLITS.get((fd.size(), schedule)) or SPLITS[2, schedule]
    return fd.pipeline(model, split, loss_fn=loss_fn, microbatches=MICROBATCHES, schedule=schedule)


def train(schedule: str, variant: str, name: str, dtype: str) -> dict[str, Any]:
    model = cut(schedule, variant, dtype)
    return trained(model, name, model.step, frozen=variant == "frozen")


def train_whole(variant: str, name: str, dtype: str) -> dict[str, Any]:
    """Train without a pipeline."""
    torch.manual_seed(0)
    model = Model(variant).to(getattr(torch, dtype))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = loss_fn(model(x), y)
        loss.backward()
        return loss

    return trained(model, name, step, frozen=variant == "frozen")


def trained(model: nn.Module, name: str, step: Callable[..., torch.Tensor], *, frozen: bool) -> dict[str, Any]:
    optimizer = optimizer_for(name, model)
    model, optimizer, loader = fd.prepare(model, optimizer, batches())
    losses, norms = [], []
    for index, (x, y) in zip(range(STEPS), endless(loader), strict=False):
        if index in (0, STEPS // 2):
            freeze_first_stage(model, frozen=frozen and index == 0)
        if index % 3 != 1:  # otherwise gradients accumulate
            optimizer.zero_grad()
        losses.append(step(x, y).item())
        norms.append(fd.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(batches().dataset.tensors[0][:3])
    return {"losses": losses, "norms": norms, "state": model.state_dict(), "output": output}


def freeze_first_stage(model: nn.Module, *, frozen: bool) -> None:
    for name, parameter in model.named_parameters():
        if name in {"embedding.weight", "positions"} or name.startswith("blocks.0."):
            parameter.requires_grad_(not frozen)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def resumed(folder: Path) -> dict[str, Any]:
    """Train 5 steps, and continue from the checkpoint of the third step. Return the stage after both."""
    states = []
    for resume in (None, folder / "own"):
        model = cut("1F1B")
        optimizer = optimizer_for("adam", model)
        model, optimizer, loader = fd.prepare(model, optimizer, batches())
        state = fd.state(model, optimizer, loader, step=0)
        own = folder / ("own" if resume is None else "other")
        checkpoints = fd.checkpoint(state, every=3, folder=own, resume=resume)
        assert checkpoints.resumed == (None if resume is None else 3)
        for x, y in endless(loader):
            optimizer.zero_grad()
            model.step(x, y)
            optimizer.step()
            state.step += 1
            state.commit()
            if state.step == 3:
                checkpoints.wait()
            if state.step == 5:
                break
        states.append(model.state_dict())
    refuses_to_resume(folder)
    return {"first": states[0], "second": states[1]}


def refuses_to_resume(folder: Path) -> None:
    model = cut("1F1B", split=["blocks.1", "blocks.2", "blocks.5"])
    model, optimizer, loader = fd.prepare(model, optimizer_for("adam", model), batches())
    state = fd.state(model, optimizer, loader, step=0)
    with pytest.raises(UsageError, match="a pipeline with other stages wrote the checkpoint"):
        fd.checkpoint(state, folder=folder / "none", resume=folder / "own")
    with pytest.raises(UsageError, match="a pipeline divides this state"):
        state.sync()
    state = fd.state(torch.nn.Linear(2, 2), step=0)
    with pytest.raises(UsageError, match=f"a pipeline of {fd.size()} ranks wrote .* a run without a pipeline"):
        fd.checkpoint(state, folder=folder / "none", resume=folder / "own")


def load_weights(folder: Path) -> None:
    """Load a model whose tied parameter the file has by one name, and check each rank's stage."""
    whole = Model("tied").double()
    expected = {name: value.fill_(index) for index, (name, value) in enumerate(whole.state_dict().items())}
    expected["embedding.weight"] = expected["head.weight"]
    stored = {name: value for name, value in expected.items() if name != "embedding.weight"}
    if fd.rank() == 0:
        save_file(stored, folder / "model.safetensors")
        save_file(stored | {"other": torch.ones(1)}, folder / "other.safetensors")
    collectives.gather_bytes(b"")  # the other ranks wait
    model = cut("1F1B", "deferred-tied")
    assert fd.load_weights(model, folder) == ([], [])
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    with pytest.raises(UsageError, match="has 'other', and the model has not"):
        fd.load_weights(model, folder / "other.safetensors")
    assert fd.load_weights(model, folder / "other.safetensors", strict=False) == ([], ["other"])


class Returns(nn.Module):
    """Layers, and a module that changes what they return."""

    def __init__(self, change: Callable[[torch.Tensor], Any], layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(layers))
        self.change = Change(change)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.change(x)


class Change(nn.Module):
    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(x)


class HandsOver(nn.Module):
    """A model whose first stage computes a number that the last one needs."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](x)
        width = x.shape[1]
        for layer in self.layers[1:]:
            x = layer(x)
        return x * width


def refuses() -> None:
    """Each refusal must be raised on all ranks."""
    layers = fd.size()
    split = [f"layers.{index}" for index in range(1, layers)]
    x = torch.zeros(8, 2)

    def fails(message: str, model: nn.Module, x: torch.Tensor = x, loss: Any = nn.functional.mse_loss) -> None:
        cut = fd.pipeline(model, split, loss_fn=loss, microbatches=layers)
        with pytest.raises(UsageError, match=message):
            cut.step(x, torch.zeros(len(x), 2))

    plain = lambda x: x  # noqa: E731
    fails("the model returns a dict, and a pipeline needs", Returns(lambda x: {"logits": x}, layers))
    fails(r"loss_fn returns a tensor of shape \[2, 2\]", Returns(plain, layers), loss=lambda x, y: (x - y)[:2])
    fails("stage 0 computes 'getitem' of type int, which stage 1 needs", HandsOver(layers))
    fails(f"has 6 samples, which do not divide into {layers} microbatches", Returns(plain, layers), torch.zeros(6, 2))
    fails("the ranks have different batches", Returns(plain, layers), x + fd.rank())
    refuses_half_frozen()
    with pytest.raises(UsageError, match="the ranks have different batches"):
        cut("1F1B")(torch.full((2, LENGTH), fd.rank()))


def refuses_half_frozen() -> None:
    """A shared parameter is frozen on one of its ranks."""
    model = cut("1F1B", "tied")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name != "embedding.weight")
    x = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    names = f"'embedding.weight' on rank 0 and 'head.weight' on rank {fd.size() - 1}"
    with pytest.raises(UsageError, match=f"{names} are one parameter, and only some of these ranks have frozen it"):
        model.step(x, x)


def main(folder: Path, cases: list[Case], *, refusals: bool) -> None:
    torch.set_num_threads(1)
    form_world()
    for case in cases:
        torch.save(train(*case), folder / f"{'-'.join(case)}.{fd.size()}.{fd.rank()}.pt")
        if fd.size() == 1:
            torch.save(train_whole(*case[1:]), folder / f"{'-'.join(case)}.whole.pt")
    if refusals and fd.size() > 1:
        refuses()
        torch.save(resumed(folder), folder / f"resumed.{fd.rank()}.pt")
        load_weights(folder)
    leave_world()


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        {"quick": QUICK, "all": CASES, "two": CASES[:2] + INTERLEAVED}[sys.argv[2]],
        refusals=sys.argv[2] == "quick",
    )
    end_process()
