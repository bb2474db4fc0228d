"""A rank tells the driver what averages of gradients cost, without waiting for anything."""

import time

import pytest
import torch
import torch.distributed as dist
from farandole.exceptions import UsageError
from farandole.protocol import Kind, checked_sync
from farandole.ranks.metrics import reporter
from farandole.ranks.training.sync import compression, gradients
from farandole.ranks.training.sync.modes import Compressed, Step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MODEL = nn.Sequential(nn.Linear(100, 50), nn.Linear(50, 2, bias=False))
PARAMETERS = 100 * 50 + 50 + 50 * 2


class OtherOptimizer:
    """Has none of the methods of torch's optimizers."""


@pytest.fixture
def sent(monkeypatch):
    records = []
    monkeypatch.setenv("FARANDOLE_SIZE", "3")
    monkeypatch.setattr(reporter, "send", records.append)
    return records


@pytest.fixture
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        (Step(), 4 * PARAMETERS),
        (Compressed("fp16"), 2 * PARAMETERS),
        # The second matrix is too small for factors.
        (Compressed("powersgd", 2), 4 * (2 * (100 + 50) + 50 + 50 * 2)),
    ],
    ids=str,
)
def test_the_size_of_gradients_is_that_of_what_is_sent(mode, size):
    assert gradients.gradient_bytes(MODEL.parameters(), mode) == size


def test_the_time_that_horovod_blocks_is_a_share_of_the_time_since_the_first_step(sent):
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    with gradients.blocked(optimizer):  # an optimizer whose costs are not measured
        gradients.end_step(optimizer)
    gradients.measure(MODEL, optimizer, Step())
    with gradients.blocked(optimizer):
        time.sleep(0.2)
    gradients.end_step(optimizer)
    assert sent == []
    with gradients.blocked(optimizer):
        time.sleep(0.05)
    time.sleep(0.05)
    gradients.end_step(optimizer)
    [record] = sent
    assert (record["kind"], record["mode"], record["staleness"]) == (Kind.SYNC, "step", 0)
    assert record["bytes_per_step"] == round(4 * PARAMETERS * 4 / 3)
    assert 0.2 < record["waiting"] < 0.8
    assert checked_sync(record)["mode"] == "step"
    gradients.stop(optimizer)
    gradients.end_step(optimizer)
    assert len(sent) == 1


@pytest.mark.usefixtures("world_of_one")
def test_the_time_in_torch_is_what_its_wrapper_has_measured(sent):
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients.measure(model, optimizer, Compressed("fp16"))
    gradients.measure(model, optimizer, Step())
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    [record] = sent
    assert record["mode"] == "step"
    assert 0 <= record["waiting"] <= 1
    assert record["bytes_per_step"] == round(4 * 10 * 4 / 3)


@pytest.mark.usefixtures("world_of_one")
def test_a_share_that_has_not_been_measured_is_unknown(sent):
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients.measure(model, optimizer, Step())
    for _ in range(2):
        optimizer.step()
    [record] = sent
    assert record["waiting"] is None
    assert checked_sync(record)["waiting"] is None


@pytest.mark.usefixtures("world_of_one")
def test_steps_of_an_optimizer_of_another_type_are_not_counted(sent):
    optimizer = OtherOptimizer()
    gradients.measure(DistributedDataParallel(nn.Linear(4, 2)), optimizer, Step())
    gradients.stop(optimizer)
    assert sent == []


def test_powersgd_needs_parameters_of_one_type():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.bfloat16))
    with pytest.raises(UsageError, match=r"parameters of one type, and the model has bfloat16 and float32; use .*fp16"):
        compression.wrapper_options(model, Compressed("powersgd"))
    assert compression.wrapper_options(model, Compressed("fp16")) == {}
    model[1].requires_grad_(False)
    assert compression.wrapper_options(model, Compressed("powersgd")) == {"bucket_cap_mb": compression.ONE_BUCKET_MB}
