"""Scripts create and destroy the default process group, although a rank already has one that it still needs."""

import pytest
import torch
import torch.distributed as dist
from farandole.exceptions import UsageError
from farandole.ranks.world import process_group
from farandole.ranks.world.world import TorchWorld
from torch.distributed import distributed_c10d


@pytest.fixture
def world(monkeypatch):
    """Yield a world of the torch backend with one rank, in a process whose functions of torch are replaced."""
    for name, value in {"RANK": "0", "SIZE": "1", "LOCAL_SIZE": "1", "BACKEND": "torch"}.items():
        monkeypatch.setenv(f"FARANDOLE_{name}", value)
    for name in ("init_process_group", "destroy_process_group"):
        for module in (dist, distributed_c10d):
            monkeypatch.setattr(module, name, getattr(module, name))
    world = TorchWorld()
    process_group.protect.__wrapped__(world.exists)
    world.open_store("127.0.0.1")
    world.form()
    yield world
    world.leave()


def total():
    """Return the sum of ones over the ranks of the world."""
    ones = torch.ones(1)
    dist.all_reduce(ones)
    return float(ones)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"backend": "gloo"},
        {"backend": "cpu:gloo"},
        {"backend": dist.Backend.GLOO, "init_method": "env://", "rank": 0, "world_size": 1},
    ],
)
def test_a_script_may_create_the_group_and_destroy_it_again(world, arguments):
    for _ in range(2):
        dist.init_process_group(**arguments)
        assert total() == 1
        dist.destroy_process_group()
        dist.destroy_process_group(dist.group.WORLD)
        assert world.exists()
    assert total() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "nccl"}, r"backend='nccl'.*backend='cpu:gloo,cuda:gloo'; leave out the argument"),
        ({"backend": "cpu:gloo,cuda:nccl"}, r"backend='cpu:gloo,cuda:nccl'"),
        ({"backend": "gloo", "rank": 1, "world_size": 1}, r"with rank=1, but .* with rank=0"),
        ({"backend": "gloo", "rank": 0, "world_size": 4}, r"with world_size=4, but .* with world_size=1"),
    ],
)
def test_another_group_than_the_ranks_own_is_refused(world, arguments, message):
    with pytest.raises(UsageError, match=message):
        dist.init_process_group(**arguments)
    assert total() == 1


def test_a_rank_that_joins_later_may_use_its_future_number(world, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", "2")
    monkeypatch.setenv("FARANDOLE_SIZE", "3")
    dist.init_process_group("gloo", rank=2, world_size=3)
    assert total() == 1


def test_other_groups_are_destroyed(world):
    first, second = dist.new_group([0]), dist.new_group([0])
    groups = distributed_c10d._world.pg_map
    dist.destroy_process_group(first)
    assert set(groups) == {second, dist.group.WORLD}
    assert [process_group.is_alive(group) for group in (first, second, dist.group.WORLD)] == [False, True, True]
    dist.destroy_process_group()
    assert set(groups) == {dist.group.WORLD}
    assert total() == 1


def test_a_rank_without_a_world_creates_and_destroys_real_groups(world):
    world.leave()
    assert not dist.is_initialized()
    assert not world.exists()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert not world.exists()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_a_world_replaces_a_group_that_a_cell_has_created(world):
    world.leave()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    world.open_store("127.0.0.1")
    world.form()
    assert world.exists()
    assert total() == 1


def test_on_another_backend_the_error_names_the_option(world, monkeypatch):
    world.leave()
    monkeypatch.setenv("FARANDOLE_BACKEND", "horovod")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UsageError, match=r"backend 'horovod'.*%%distributed_train --backend torch"):
        dist.init_process_group("gloo")
    with pytest.raises(ValueError, match="Invalid device:backend pairing"):
        dist.init_process_group("cpu:gloo:x", store=dist.HashStore(), rank=0, world_size=1)
