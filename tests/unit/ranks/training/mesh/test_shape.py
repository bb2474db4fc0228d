"""Tests of the argument ``mesh`` of ``fd.prepare``."""

import farandole as fd
import pytest
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.shape import CurrentPlacement, MeshShape, parsed
from farandole.ranks.training.shard import BatchPlace, place_in_world
from farandole.ranks.world import world
from torch import nn


@pytest.fixture
def ranks(monkeypatch):
    """Return a function that makes this process a rank of a world of torch."""

    def become(size, rank=0, backend="torch"):
        monkeypatch.setenv("FARANDOLE_SIZE", str(size))
        monkeypatch.setenv("FARANDOLE_RANK", str(rank))
        monkeypatch.setenv("FARANDOLE_BACKEND", backend)

    return become


@pytest.mark.parametrize(
    ("size", "mesh", "shape"),
    [
        (4, {"shard": 4}, MeshShape(shard=4)),
        (4, {"data": 2, "shard": 2}, MeshShape(data=2, shard=2)),
        (4, {"shard": -1}, MeshShape(shard=4)),
        (8, {"tensor": 2, "shard": -1}, MeshShape(shard=4, tensor=2)),
        (1, {"shard": -1, "data": 1}, MeshShape()),
    ],
)
def test_a_mesh_has_all_ranks(ranks, size, mesh, shape):
    ranks(size)
    assert parsed(mesh) == shape


def test_ranks_along_tensor_have_the_same_share(ranks):
    places = []
    for rank in range(8):
        ranks(8, rank)
        places.append(MeshShape(data=2, shard=2, tensor=2).place())
    assert places == [BatchPlace(share=index // 2, shares=4, together=True, copied=True) for index in range(8)]


def test_loaders_without_a_mesh_follow_the_mesh_of_this_world(ranks, monkeypatch):
    ranks(4, 3)
    current, alone = CurrentPlacement(), BatchPlace(share=3, shares=4)
    assert current.place() == alone
    current.set(MeshShape(data=2, tensor=2).place)
    assert current.place() == BatchPlace(share=1, shares=2, copied=True)
    monkeypatch.setattr(world.current(), "times_left", world.current().times_left + 1)
    assert current.place() == alone
    current.set(MeshShape(tensor=4).place)
    assert current.place() == BatchPlace(share=0, shares=1, copied=True)
    current.set(place_in_world)
    assert current.place() == alone


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ([4], r"mesh is \[4\]; it must be a dict, such as"),
        ({"shards": 4}, "has no dimension 'shards'; .* Did you mean 'shard'?"),
        ({3: 4}, "has no dimension 3"),
        ({"shard": 0}, "the mesh has shard=0; it must be a number of ranks"),
        ({"shard": True}, "the mesh has shard=True"),
        ({"shard": -1, "data": -1}, "only one dimension of the mesh may be -1"),
        ({"shard": 3}, r"{'shard': 3} has 3 ranks, and there are 4; change the mesh, for example to {'shard': 4}"),
        ({"shard": -1, "tensor": 3}, "has 3 ranks, and there are 4"),
        ({"shard": -1, "tensor": 8}, "has 8 ranks, and there are 4"),
    ],
)
def test_a_mesh_that_does_not_fit_is_named(ranks, mesh, message):
    ranks(4)
    with pytest.raises(UsageError, match=message):
        fd.prepare(nn.Linear(2, 2), mesh=mesh)


@pytest.mark.parametrize("backend", ["horovod", "none"])
def test_other_backends_have_no_meshes(ranks, backend):
    ranks(4, backend=backend)
    with pytest.raises(UsageError, match=f"a mesh needs the backend torch, and that of the ranks is {backend}; use"):
        parsed({"shard": 4})
