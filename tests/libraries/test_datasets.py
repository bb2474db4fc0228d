"""Data sets of Hugging Face are shared by any number of ranks, continue within an epoch, and are sources of batches."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import farandole as fd
import pytest
from datasets import Dataset, load_from_disk
from farandole.driver.batches.inputs import find_input
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from datasets import IterableDataset

ROWS = 50
BEGIN = {"epoch": 1, "samples": 0, "seed": 0}


def rows() -> Dataset:
    return Dataset.from_dict({"id": list(range(ROWS)), "x": [[number, -number] for number in range(ROWS)]})


def stream() -> IterableDataset:
    return rows().to_iterable_dataset(num_shards=4).shuffle(seed=5, buffer_size=16).with_format("torch")


KINDS: dict[str, Callable[[], DataLoader[Any]]] = {
    "plain": lambda: DataLoader(rows(), batch_size=8, shuffle=True),
    "torch": lambda: DataLoader(rows().with_format("torch"), batch_size=8, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(stream(), batch_size=8),
    "stream-in-a-process": lambda: DataLoader(stream(), batch_size=8, num_workers=1),
}


def read(
    patch: pytest.MonkeyPatch, size: int, make: Callable[[], Any], position: dict[str, int], steps: int | None
) -> tuple[list[int], dict[str, int]]:
    """Return the rows that ``size`` ranks read from a position, and the position at which they stop."""
    seen: list[int] = []
    for rank in range(size):
        patch.setenv("FARANDOLE_RANK", str(rank))
        patch.setenv("FARANDOLE_SIZE", str(size))
        _, _, loader = fd.prepare(None, None, make())
        loader.load_state_dict(position)
        for step, batch in enumerate(loader, 1):
            seen += batch["id"].tolist()
            end = loader.state_dict()
            if step == steps:
                break
    return seen, end


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_each_row_is_used_once_with_4_3_and_1_ranks(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> None:
    seen: list[int] = []
    position = BEGIN
    for size, steps in ((4, 2), (3, 2), (1, None)):
        found, position = read(monkeypatch, size, make, position, steps)
        seen += found
    assert Counter(seen) == Counter(range(ROWS))
    assert seen != list(range(ROWS))
    other, _ = read(monkeypatch, 1, make, BEGIN | {"epoch": 2}, None)
    assert other != seen


def test_rows_on_a_disk_are_a_source_of_batches(tmp_path: Path) -> None:
    rows().save_to_disk(tmp_path / "rows")
    found = find_input(load_from_disk(tmp_path / "rows"))
    source: Any = pickle.loads(pickle.dumps(found.source))
    batch = source.read(3, 6)
    assert {name: list(values) for name, values in batch.items()} == {"id": [3, 4, 5], "x": [[3, -3], [4, -4], [5, -5]]}
    assert find_input(rows()).rows == ROWS


def test_its_parquet_files_are_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows().to_parquet(tmp_path / "rows.parquet")
    assert fd.dataset(tmp_path / "rows.parquet")[7]["x"].tolist() == [7, -7]
