import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import farandole
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.parallel import GradientWeight
from farandole.ranks.training.prepare import prepare
from farandole.ranks.training.shard import ShardedLoader, Share, merge, to_device
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler


class Weights:
    """A stand-in for the gradient weight that records the values a loader sets."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def set(self, weight: float) -> None:
        self.seen.append(weight)


def _numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def _be(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("FARANDOLE_RANK", str(rank))
    monkeypatch.setenv("FARANDOLE_SIZE", str(size))


def _epochs(monkeypatch: pytest.MonkeyPatch, size: int, make: Any, epochs: int = 1) -> list[list[list[int]]]:
    """Return a list of batches for each rank."""
    ranks = []
    for rank in range(size):
        _be(monkeypatch, rank, size)
        torch.manual_seed(rank)  # each rank has different random numbers
        loader = make()
        ranks.append([batch[0].tolist() for _ in range(epochs) for batch in loader])
    return ranks


def _flat(lists: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


def _joined(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the global batches, which are joined from the ranks' shares."""
    return [_flat(list(parts)) for parts in zip(*ranks, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_shares_cover_a_batch_once_and_weigh_one_on_average(count: int, size: int) -> None:
    shares = [Share(list(range(count)), rank, size) for rank in range(size)]
    assert [index for share in shares if share.weight for index in share.indices] == list(range(count))
    assert sum(share.weight for share in shares) == pytest.approx(size)
    assert all(share.indices for share in shares)


def test_merge_makes_global_batches() -> None:
    batches = [[0, 1], [2, 3], [4, 5], [6]]
    assert merge(batches, 2, drop_last=False) == [[0, 1, 2, 3], [4, 5, 6]]
    assert merge(batches[:3], 2, drop_last=True) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_share_the_batches_of_one_process(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def make() -> ShardedLoader:
        return ShardedLoader(DataLoader(_numbers(20), batch_size=8, shuffle=True), weight=Weights())

    (alone,) = _epochs(monkeypatch, 1, make, epochs=2)
    together = _epochs(monkeypatch, size, make, epochs=2)
    assert _joined(together) == alone
    assert sorted(_flat(alone[:3])) == list(range(20))
    assert alone[:3] != alone[3:]


def test_per_rank_keeps_the_loaders_batch_size_on_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> ShardedLoader:
        return ShardedLoader(DataLoader(_numbers(20), batch_size=4), per_rank=True, weight=Weights())

    ranks = _epochs(monkeypatch, 2, make)
    assert [[len(batch) for batch in rank] for rank in ranks] == [[4, 4, 2], [4, 4, 2]]
    assert len(make()) == 3


def test_an_evaluation_loader_gives_each_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> ShardedLoader:
        loader = DataLoader(_numbers(9), batch_size=4)
        return prepare(None, None, loader)[2]  # type: ignore[no-any-return]

    ranks = _epochs(monkeypatch, 4, make)
    assert sorted(_flat(_flat(ranks))) == list(range(9))
    assert [len(rank) for rank in ranks] == [3, 2, 2, 2]
    assert len(make()) == 2


def test_weights_follow_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 1, 2)
    weights = Weights()
    list(ShardedLoader(DataLoader(_numbers(7), batch_size=4), weight=weights))
    assert weights.seen == [1.0, pytest.approx(2 / 3), 1.0]


def test_set_epoch_repeats_an_order() -> None:
    loader = ShardedLoader(DataLoader(_numbers(50), batch_size=50, shuffle=True))
    first = next(iter(loader))[0]
    assert not torch.equal(next(iter(loader))[0], first)
    loader.set_epoch(0)
    assert torch.equal(next(iter(loader))[0], first)


class OwnSampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(10), 10))

    def __len__(self) -> int:
        return 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(_numbers(10), 4, sampler=OwnSampler()),
        lambda: DataLoader(_numbers(10), 4, sampler=WeightedRandomSampler([1.0] * 10, 10)),
        lambda: DataLoader(_numbers(10), 4, shuffle=True, generator=torch.Generator()),
        lambda: DataLoader(_numbers(10), 4, sampler=RandomSampler(range(10), generator=torch.Generator())),
    ],
    ids=["python-random", "weighted", "generator", "sampler-generator"],
)
def test_any_sampler_gives_the_same_samples_on_several_ranks(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    (alone,) = _epochs(monkeypatch, 1, lambda: ShardedLoader(make(), weight=Weights()))
    random.seed()
    together = _epochs(monkeypatch, 2, lambda: ShardedLoader(make(), weight=Weights()))
    assert _joined(together) == alone


def test_drawing_does_not_change_the_users_random_numbers() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    ShardedLoader(DataLoader(_numbers(10), 4, shuffle=True))._shares(0)
    assert torch.rand(1) == expected


def _collate(items: list[Any]) -> list[torch.Tensor]:
    return [torch.stack([item[0] for item in items]) + 100]


def test_workers_and_collate_are_kept() -> None:
    made = DataLoader(_numbers(8), 4, num_workers=1, collate_fn=_collate, persistent_workers=True, prefetch_factor=3)
    loader = ShardedLoader(made)
    seen = [batch[0].tolist() for _ in range(2) for batch in loader]
    assert seen == [[100, 101, 102, 103], [104, 105, 106, 107]] * 2
    assert (loader.num_workers, loader.prefetch_factor, loader.batch_size) == (1, 3, 4)
    assert loader.dataset is made.dataset


class Batch(NamedTuple):
    x: torch.Tensor
    meta: dict[str, Any]


def test_nested_batches_move_and_keep_their_type() -> None:
    batch = Batch(torch.zeros(2), {"y": [torch.zeros(1), "text"], "n": 3})
    moved = to_device(batch, torch.device("meta"))
    assert isinstance(moved, Batch)
    assert moved.x.device.type == moved.meta["y"][0].device.type == "meta"
    assert moved.meta["y"][1] == "text"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [1, 2], "is a list; pass a torch.utils.data.DataLoader"),
        (lambda: DataLoader(_numbers(3), batch_size=None), "batch_size=None"),
        (
            lambda: DataLoader(_numbers(3), sampler=DistributedSampler(range(3), 1, 0)),
            "the loader has a DistributedSampler",
        ),
    ],
)
def test_a_loader_that_cannot_be_sharded(make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        prepare(None, None, make())


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="batch_size is 'all'; it must be 'global' or 'per_rank'"):
        prepare(None, None, None, batch_size="all")
    with pytest.raises(UsageError, match="an optimizer needs its model"):
        prepare(None, torch.optim.SGD([torch.zeros(1)], lr=1), None)


def test_arguments_in_the_wrong_order_are_named() -> None:
    model, loader = nn.Linear(2, 2), DataLoader(_numbers(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    with pytest.raises(UsageError, match=r"model is of type SGD, which belongs in the place of the optimizer; call fd"):
        prepare(optimizer, model, loader)
    with pytest.raises(UsageError, match="optimizer is of type DataLoader, which .* e.g. loader=loader"):
        prepare(model, loader)
    with pytest.raises(UsageError, match="the loader is of type SGD, which belongs in the place of the optimizer"):
        prepare(model, None, optimizer)


def test_another_number_of_variables_than_three_is_named_before_anything_is_prepared() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    with pytest.raises(UsageError, match=r"unpacks the result into 2; .* model, optimizer, _ = fd.prepare\(model"):
        model, optimizer = prepare(model, optimizer)  # type: ignore[misc]
    with pytest.raises(UsageError, match="into 4;"):
        _a, _b, _c, _d = prepare(model)  # type: ignore[misc]
    with pytest.raises(UsageError, match="into 1;"):
        (model,) = prepare(model)  # type: ignore[misc]
    model, *_rest = prepare(model)
    pair = prepare(model)[0], prepare(model)
    (_one, _two), (_model, _, _) = (1, 2), prepare(model)
    assert (pair[0], pair[1][0], _model) == (model, model, model)


ARGUMENT_CELLS = [
    "model = fd.prepare(model)",
    "model = fd.prepare(model, optimizer)",
    "optimizer = fd.prepare(model, optimizer=optimizer)",
    "model = fd.prepare(*[model, optimizer])",
    "def local(model):\n    model = fd.prepare(model)\n    return model(1)\nlocal(model)",
    "def shared():\n    global model\n    model = fd.prepare(model)\nshared()",
    "def outer(model):\n    def use(): return model\n    model = fd.prepare(model)\nouter(model)",
]
OTHER_CELLS = [
    "prepared = fd.prepare(model, optimizer)",
    "prepared = fd.prepare(model)\nprepared = fd.prepare(*prepared)",
    "model, optimizer, _ = fd.prepare(model, optimizer)",
    "optimizer = None\nmodel, *rest = fd.prepare(model, optimizer)",
    "loader = None\nloader = fd.prepare(model)",
    "model = fd.prepare(model)[0]",
    "model = tuple(fd.prepare(model))[0]",
    "found = {'model': model}\nfound['model'] = fd.prepare(found['model'])",
    "def both(model):\n    prepared = fd.prepare(model)\n    return prepared\nboth(model)",
]


def _run(cell: str, before: str = "") -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    exec(compile(before + cell, "cell", "exec"), {"fd": farandole, "model": model, "optimizer": optimizer})


@pytest.mark.parametrize("cell", ARGUMENT_CELLS)
def test_all_values_in_the_variable_of_an_argument_are_refused_with_the_remedy(cell: str) -> None:
    name = "optimizer" if cell.startswith("optimizer") else "model"
    with pytest.raises(UsageError, match=rf"stores all three in '{name}'; write model, optimizer, loader = fd.prepare"):
        _run(cell)


def test_a_cell_with_many_names_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match="stores all three in 'other'"):
        _run("other = model\nother = fd.prepare(other)", "".join(f"name_{number} = 1\n" for number in range(300)))


@pytest.mark.parametrize("cell", OTHER_CELLS)
def test_other_uses_of_the_values_are_allowed(cell: str) -> None:
    _run(cell)


def test_gradients_are_scaled_only_while_a_weight_is_set() -> None:
    model = nn.Linear(1, 1, bias=False)
    weight = GradientWeight(model)
    seen = []
    for value in (1.0, 0.5, 0.0, 1.0):
        weight.set(value)
        model.zero_grad()
        model(torch.ones(1, 1)).backward()
        seen.append(float(model.weight.grad))
    assert seen == [1.0, 0.5, 0.0, 1.0]
    assert not weight._hooks


def test_a_cell_can_be_run_again() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    once = prepare(model, optimizer, DataLoader(_numbers(4), 2))
    again = prepare(*once)
    assert again[:2] == (model, optimizer)
    assert again[2].source is once[2].source


def test_horovod_on_a_shared_gpu_is_refused_before_nccl_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import horovod.torch as hvd

    _be(monkeypatch, 0, 2)
    monkeypatch.setenv("FARANDOLE_BACKEND", "horovod")
    monkeypatch.setenv("FARANDOLE_LOCAL_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(hvd, "nccl_built", lambda: 22809)
    with pytest.raises(UsageError, match=r"the 2 ranks of this worker share 1 GPU, and NCCL.*--backend torch"):
        prepare(nn.Linear(2, 1))
