"""Wrappers that a cell applies after `fd.prepare` with a mode in which ranks train on their own."""

import copy
import pickle
import sys

import horovod.torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.exceptions import UsageError
from farandole.ranks.training.sync import wrappers
from farandole.ranks.training.sync.modes import Local
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ATTRIBUTE = wrappers.READ_BY_WRAPPER


@pytest.fixture(autouse=True, scope="module")
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def prepared():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrappers.refuse(model, optimizer, Local())
    return model, optimizer


class HorovodOptimizer(torch.optim.SGD):
    """Has the attribute and the parameter groups of the optimizers that ``hvd.DistributedOptimizer`` returns."""

    _allreduce_delay = None


def test_a_wrapper_of_the_model_is_refused_when_it_is_created(prepared):
    model, _ = prepared
    with pytest.raises(UsageError, match=r"selected fd\.sync\.local for this model.*; leave out DistributedDataPar"):
        DistributedDataParallel(model)
    with wrappers.admitted(model):
        DistributedDataParallel(model)
    with pytest.raises(UsageError, match="leave out DistributedDataParallel"):
        DistributedDataParallel(model)
    wrappers.admit(model, object())  # an optimizer without groups of parameters
    assert ATTRIBUTE not in vars(model)
    DistributedDataParallel(model)


def test_copies_of_the_model_and_models_from_files_can_be_wrapped(prepared):
    model, _ = prepared
    pickled = pickle.dumps(model)
    assert b"farandole" not in pickled
    for other in (copy.deepcopy(model), pickle.loads(pickled)):
        assert DistributedDataParallel(other).parameters_to_ignore == set()
    assert set(model.state_dict()) == {"weight", "bias"}


def test_names_that_the_model_had_are_kept(prepared):
    model, optimizer = prepared
    wrappers.admit(model, optimizer)
    setattr(model, ATTRIBUTE, ["bias"])
    wrappers.refuse(model, optimizer, Local())
    wrappers.refuse(model, optimizer, Local())  # as if a cell runs twice
    assert getattr(copy.deepcopy(model), ATTRIBUTE) == ["bias"]
    with wrappers.admitted(model):
        assert getattr(model, ATTRIBUTE) == ["bias"]
    wrappers.admit(model, optimizer)
    assert getattr(model, ATTRIBUTE) == ["bias"]


def test_a_wrapper_of_the_optimizer_is_refused_before_its_first_step(prepared):
    model, optimizer = prepared
    before = copy.deepcopy(model.state_dict())
    model(torch.ones(1, 2)).sum().backward()
    wrapped = HorovodOptimizer(optimizer.param_groups)
    with pytest.raises(UsageError, match=r"fd\.sync\.local for these parameters.*optimizer that fd\.prepare has ret"):
        wrapped.step()
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    optimizer.step()
    HorovodOptimizer(nn.Linear(2, 1).parameters(), lr=0.1).step()  # an optimizer of other parameters
    wrappers.admit(model, optimizer)
    wrapped.step()


def test_the_optimizers_of_horovod_have_the_attribute_that_is_looked_for():
    created = sys.modules[hvd.DistributedOptimizer.__module__]._DistributedOptimizer.__init__
    assert "_allreduce_delay" in created.__code__.co_names


def test_a_compiled_model_is_refused_and_admitted_as_any_other():
    model = torch.compile(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        wrappers.refuse(model, optimizer, Local())
        with pytest.raises(UsageError, match="leave out DistributedDataParallel"):
            DistributedDataParallel(model)
        with wrappers.admitted(model):
            DistributedDataParallel(model)
    wrappers.admit(model, optimizer)
    DistributedDataParallel(model)
