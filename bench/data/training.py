"""The models of both flows, and the loop that trains them on each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from bench.data.job import BATCH, CATEGORIES, CLASSES, CROPPED, EPOCHS, INPUTS, ITEMS

Batch = Mapping[str, torch.Tensor]
LEARNING_RATE = 2e-3
FEATURES = 64
NUMBERS = ("price", "popularity", "hour_sin", "hour_cos")


class ClickModel(nn.Module):
    """Predicts whether an item is clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, 16)
        self.categories = nn.Embedding(len(CATEGORIES), 4)
        self.layers = nn.Sequential(nn.Linear(len(NUMBERS) + 20, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return scores of the shape [rows, 2]."""
        numbers = torch.stack([batch[name] for name in NUMBERS], dim=1)
        return self.layers(torch.cat([numbers, self.items(batch["item"]), self.categories(batch["category"])], dim=1))


class ImageModel(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolution(3, 16), *_convolution(16, 32), *_convolution(32, 64), nn.Flatten(), nn.Linear(1024, FEATURES)
        )
        self.classes = nn.Linear(FEATURES, CLASSES)

    def features(self, batch: Batch) -> torch.Tensor:
        """Return features of the shape [rows, `FEATURES`]."""
        return self.layers(batch["pixels"].float() / 255).relu()

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return scores of the shape [rows, `CLASSES`]."""
        return self.classes(self.features(batch))


MODELS = {"clicks": ClickModel, "images": ImageModel}


def _convolution(inputs: int, outputs: int) -> Sequence[nn.Module]:
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)


def new_model(flow: str) -> nn.Module:
    """Return a new model, which has the same parameters in each process."""
    torch.manual_seed(0)
    return MODELS[flow]()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of a model."""
    return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: Callable[[], Iterable[Batch]]) -> None:
    """Train a model with the batches that ``epoch`` returns for each epoch."""
    for _ in range(EPOCHS):
        for batch in epoch():
            optimizer.zero_grad()
            cross_entropy(model(batch), batch["label"]).backward()
            optimizer.step()


def save(model: nn.Module, path: str) -> None:
    """Write the parameters of a model, which may be in a wrapper such as DistributedDataParallel."""
    torch.save(getattr(model, "module", model).state_dict(), path)


def load(flow: str, path: str) -> nn.Module:
    """Return a model with the parameters of a file."""
    model = MODELS[flow]()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def predictions(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """Return the predicted class of each row, with its score for clicks or its features for images."""
    with torch.inference_mode():
        if isinstance(model, ImageModel):
            found = model.features(batch)
            return {"predicted": model.classes(found).argmax(1).numpy(), "features": found.numpy()}
        scores = model(batch)
        return {"predicted": scores.argmax(1).numpy(), "score": scores.softmax(1)[:, 1].numpy()}


def tensors(batch: Mapping[str, Any], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return some columns of a batch as tensors. Pixels are bytes, which become [rows, 3, height, width]."""
    return {name: _pixels(batch[name]) if name == "pixels" else _numbers(batch[name]) for name in names}


def _pixels(values: Iterable[bytes]) -> torch.Tensor:
    return torch.frombuffer(bytearray(b"".join(values)), dtype=torch.uint8).view(-1, 3, CROPPED, CROPPED)


def _numbers(values: Any) -> torch.Tensor:
    # Arrays in the shared memory of an engine cannot be written to, which torch would warn about.
    return torch.from_numpy(np.array(values))


def train(flow: str, prepared: str, path: str, **group: Any) -> None:
    """Train in one of several processes, each of which reads its share of the rows of some Parquet files.

    ``group`` has arguments of `torch.distributed.init_process_group`. Without any, the environment variables of
    torchrun describe the group.
    """
    # Destroying a Gloo group right after a collective can deadlock: its destructor holds the GIL while it joins a
    # thread that needs the GIL. An earlier training in this process ended seconds ago.
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("gloo", **group)
    rows = _share(flow, prepared, dist.get_rank(), dist.get_world_size())
    model = DistributedDataParallel(new_model(flow))
    fit(model, optimizer_of(model), lambda: _shuffled(rows, BATCH[flow]))
    if dist.get_rank() == 0:
        save(model, path)


def _share(flow: str, prepared: str, rank: int, size: int) -> dict[str, torch.Tensor]:
    """Return the rows of one process. All processes have equally many."""
    names = [*INPUTS[flow], "label"]
    table = pq.read_table(prepared, columns=names)
    count = table.num_rows // size
    own = table.slice(rank * count, count)
    columns = {name: own[name].to_pylist() if name == "pixels" else own[name].to_numpy() for name in names}
    return tensors(columns, names)


def _shuffled(rows: dict[str, torch.Tensor], size: int) -> Iterator[Batch]:
    for chosen in torch.randperm(len(rows["label"])).split(size):
        yield {name: values[chosen] for name, values in rows.items()}
