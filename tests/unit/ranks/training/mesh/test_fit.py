"""Tests of the prediction of whether a model fits, and of the mesh that is advised."""

import gc
import weakref

import farandole as fd
import pytest
import torch
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.training.mesh import fit
from farandole.ranks.training.mesh.fit import Needs, advice, meshes, needs_of, smallest_mesh
from farandole.ranks.training.mesh.shape import MeshShape
from torch import nn

MIB = 2**20


def needs(**changes):
    """Return the needs of a model whose state is 2.5 times the memory of a rank."""
    sizes = {"parameters": 640, "gradients": 640, "optimizer": 1280, "gathered": 100, "process": 200, "capacity": 1024}
    return Needs(**{name: size * MIB for name, size in (sizes | changes).items()})


def test_a_rank_without_a_mesh_has_the_whole_state_and_on_several_ranks_the_buckets_of_ddp():
    one = needs()
    beside = one.process + one.capacity / 10
    assert one.on(MeshShape()) == pytest.approx(one.state + beside, abs=1)
    assert one.on(MeshShape(data=4)) == pytest.approx(one.state + one.gradients + beside, abs=1)
    assert one.on(MeshShape(data=2, shard=4)) == pytest.approx(one.state / 4 + one.gathered + beside, abs=1)
    assert one.on(MeshShape(shard=2, tensor=2)) == one.on(MeshShape(shard=4))


def test_the_step_of_an_optimizer_takes_the_place_of_activations_and_units():
    one = needs(step=640)
    assert one.on(MeshShape()) == one.state + one.process + one.step
    assert one.on(MeshShape(shard=8)) == needs().on(MeshShape(shard=8))
    assert smallest_mesh(needs(gathered=20, process=150, step=1280), 4) == MeshShape(shard=5)


@pytest.mark.parametrize(
    ("changes", "ranks", "expected"),
    [
        ({}, 4, MeshShape(shard=4)),
        ({}, 8, MeshShape(data=2, shard=4)),
        ({}, 1, MeshShape(shard=5)),
        ({"capacity": 2048}, 4, MeshShape(data=2, shard=2)),
        ({"capacity": 4096}, 4, MeshShape(data=4)),
        ({"process": 950}, 4, None),
    ],
)
def test_the_smallest_mesh_has_the_fewest_shards_that_divide_the_ranks(changes, ranks, expected):
    changes = {"gathered": 20, "process": 150, **changes} if ranks > 1 else changes
    assert smallest_mesh(needs(**changes), ranks) == expected


def test_a_model_that_does_not_fit_has_an_advice_with_the_mesh():
    assert advice(needs(gathered=20, process=150), 4, "net") == (
        "net does not fit on a rank without a mesh: with gradients, optimizer state, activations and the process it "
        "needs 3.4 GiB, and a rank has 1.0 GiB. The smallest mesh that fits is mesh={'shard': 4}."
    )
    assert advice(needs(), 2, "net").endswith("The smallest mesh that fits is mesh={'shard': 5} on 5 ranks.")
    for backend in ("horovod", "none"):
        assert advice(needs(), 2, "net", backend).endswith("mesh={'shard': 5} on 5 ranks with the backend torch.")
    assert advice(needs(capacity=8000), 2, "net") == "net fits on each rank without a mesh."
    assert advice(needs(gathered=900), 2, "net").startswith(
        "net fits on no mesh: in addition to its shares, each rank "
    )


def test_the_meshes_of_a_table_begin_without_a_mesh_and_end_with_one_that_fits():
    assert meshes(needs(), 2) == [MeshShape(data=2), MeshShape(shard=2), MeshShape(shard=5)]
    assert meshes(needs(gathered=900), 1) == [MeshShape()]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(100, 100, bias=False) for _ in range(3))
        self.head = nn.Linear(100, 10, bias=False)


@pytest.mark.parametrize("deferred", [False, True])
def test_the_needs_of_a_model_do_not_depend_on_its_memory(deferred):
    with torch.device("meta" if deferred else "cpu"):
        model = Model()
    model.head.weight.requires_grad_(False)
    found = needs_of(model)
    assert (found.parameters, found.gradients, found.optimizer) == (124_000, 120_000, 240_000)
    # The head stays gathered, and one of the blocks has its parameters, gradients and buffers beside it.
    assert found.gathered == 4_000 + 4 * 40_000
    assert 0 < found.process < found.capacity


def trained(width):
    """Return a model and its optimizer after a step, which have 64 MiB for 2048."""
    model = nn.Linear(width, width)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_data_counts_as_memory_of_the_process_and_models_of_earlier_cells_do_not():
    trained(1)  # torch needs memory when it is used for the first time
    before = needs_of(Model()).process
    earlier = trained(2048)
    assert needs_of(Model()).process < before + 16 * MIB
    del earlier
    data = torch.ones(64 * MIB // 4)
    assert needs_of(Model()).process > before + 48 * MIB
    del data


@pytest.mark.parametrize(
    ("kind", "options", "copies"),
    [(torch.optim.SGD, {}, 0), (torch.optim.SGD, {"momentum": 0.9}, 1), (torch.optim.AdamW, {}, 2)],
)
def test_the_state_depends_on_the_optimizer(kind, options, copies):
    model = Model()
    found = needs_of(model, kind(model.parameters(), lr=0.1, **options))
    assert found.optimizer == copies * found.gradients


@pytest.fixture
def sent(monkeypatch):
    """The records that the reporter of a run sends."""
    records = []
    own = reporter.Reporter()
    own.run = "a run"
    announcer = fit.Announcer()
    monkeypatch.setattr(fit, "announcer", lambda: announcer)
    monkeypatch.setattr(own, "send", records.append)
    monkeypatch.setattr(reporter, "current", lambda: own)
    monkeypatch.setattr(fit.reporter, "send", records.append)
    return records


@pytest.mark.parametrize(
    ("kind", "options", "copies"),
    [(torch.optim.SGD, {}, 0), (torch.optim.AdamW, {}, 1), (torch.optim.AdamW, {"foreach": False}, 0)],
)
def test_on_gpus_the_step_of_adam_needs_memory(monkeypatch, kind, options, copies):
    model = Model()
    optimizer = kind(model.parameters(), lr=0.1, **options)
    assert needs_of(model, optimizer).step == 0
    monkeypatch.setattr(context, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(fit, "rank_memory", lambda: 1)
    found = needs_of(model, optimizer)
    assert found.step == copies * found.gradients


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_prepare_announces_the_mesh_before_the_memory_is_used(sent, monkeypatch):
    monkeypatch.setattr(fit, "rank_memory", lambda: 1)
    model = nn.Linear(2, 2)
    fd.prepare(model, sgd(model))
    [record] = sent
    assert (record["kind"], record["rank"]) == ("fit", 0)
    assert record["text"].startswith("The model fits on no mesh: ")


def test_a_model_that_fits_or_that_is_not_trained_is_not_announced(sent, monkeypatch):
    model = nn.Linear(2, 2)
    fd.prepare(model, sgd(model))
    monkeypatch.setattr(fit, "rank_memory", lambda: 1)
    fd.prepare(model)
    assert sent == []


def test_a_model_on_a_mesh_is_announced_on_cpus_although_they_do_not_offload(sent, monkeypatch):
    monkeypatch.setattr(fit, "rank_memory", lambda: 1)
    model = nn.Linear(2, 2)
    fd.prepare(model, sgd(model), mesh={"shard": -1}, offload=True)
    assert [record["kind"] for record in sent] == ["fit"]


def test_a_model_of_unknown_size_is_not_announced(sent, monkeypatch):
    monkeypatch.setattr(fit, "rank_memory", lambda: 1)
    model = nn.LazyLinear(2)
    fit.Announcer().prepare(model, sgd(model), MeshShape())
    assert sent == []


def test_a_run_begins_with_an_advice_if_an_earlier_model_leaves_no_room_for_another(sent, monkeypatch):
    monkeypatch.setenv("FARANDOLE_SIZE", "4")
    monkeypatch.setenv("FARANDOLE_BACKEND", "torch")
    monkeypatch.setattr(fit, "needs_of", lambda *_: needs(gathered=20, process=150))
    own, earlier, model = fit.Announcer(), nn.Linear(2, 2), nn.Linear(2, 2)
    own.begin()
    own.prepare(earlier, sgd(earlier), MeshShape(shard=4))
    assert sent == []
    own.begin()
    text = sent[0]["text"]
    assert text.startswith("When the cell began, the model of an earlier cell was still in memory, and a rank has no ")
    assert "`del model, optimizer`. That model does not fit on a rank without a mesh: " in text
    assert text.endswith("The smallest mesh that fits is mesh={'shard': 4}.")
    own.prepare(model, sgd(model), MeshShape(shard=4))
    assert len(sent) == 1  # both models are in memory
    del earlier
    own.prepare(model, sgd(model), MeshShape(shard=4))
    assert [record["text"] for record in sent] == [text, ""]


def test_a_run_begins_without_an_advice_if_a_rank_has_room_for_two_models(sent, monkeypatch):
    monkeypatch.setattr(fit, "needs_of", lambda *_: needs(capacity=8000))
    own, model = fit.Announcer(), nn.Linear(2, 2)
    own.prepare(model, sgd(model), MeshShape())
    own.begin()
    assert sent == []


@pytest.mark.usefixtures("sent")
def test_a_model_that_the_cell_has_replaced_is_freed_although_its_hooks_refer_to_it():
    own, earlier = fit.Announcer(), nn.Linear(2, 2)
    earlier.register_forward_hook(earlier.forward)
    own.prepare(earlier, sgd(earlier), MeshShape())
    gone, model = weakref.ref(earlier), nn.Linear(2, 2)
    gc.disable()
    try:
        del earlier
        assert gone() is not None
        own.prepare(model, sgd(model), MeshShape())
    finally:
        gc.enable()
    assert gone() is None
