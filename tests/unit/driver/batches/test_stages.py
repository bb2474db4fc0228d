"""Tests of what may be a stage, and what the manifest and the run know of it."""

import functools
import threading

import pytest
import torch
from farandole.driver.batches.stages import checked_stages, identities, packed, source_code
from farandole.exceptions import ModelError, ModelNotFoundError, UsageError
from farandole.models.store import ModelStore

from tests.models import save_small, save_sum


def double(batch):
    return batch


class Model:
    def __init__(self, size=1):
        self.size = size

    def __call__(self, batch):
        return batch


class Silent:
    pass


@pytest.fixture
def store(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path))
    return ModelStore()


def test_one_stage_needs_no_list():
    assert checked_stages(double) == [double]


def test_stages_are_functions_classes_and_instances():
    stages = [double, Model, Model(2), functools.partial(Model, 3), torch.nn.ReLU()]
    assert checked_stages(stages) == stages
    assert [one["name"] for one in identities(stages)] == ["double", "Model", "Model", "Model", "ReLU"]
    assert len({one["code"] for one in identities(stages)}) == 5


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "needs at least one stage"),
        ([double, 3], "stage 2 is 3; a stage is a function of a batch"),
        ([Silent], r"stage 1 \(Silent\) is a class without the method __call__"),
        ([functools.partial(Silent)], r"stage 1 \(Silent\) is a class without the method __call__"),
    ],
)
def test_what_is_no_stage_is_refused(stages, said):
    with pytest.raises(UsageError, match=said):
        checked_stages(stages)


def test_models_have_the_version_and_the_digests_of_their_files(store):
    save_sum(store)
    first = identities(checked_stages(["small"]))
    assert first[0]["name"] == "small:1"
    save_sum(store)
    assert checked_stages(["small"]) == ["small:2"]
    assert identities(["small:1"]) == first


def test_models_that_cannot_be_loaded_are_refused(store):
    with pytest.raises(ModelNotFoundError, match="there is no model 'iris'"):
        checked_stages(["iris:3"])
    save_small(store)
    with pytest.raises(ModelError, match="iris:1 was saved without an example"):
        checked_stages(["iris"])


def test_a_stage_that_cannot_be_pickled_is_named():
    lock = threading.Lock()

    def locked(batch):
        with lock:
            return batch

    for function in (identities, packed):
        with pytest.raises(UsageError, match=r"stage 2 \(locked\) cannot be sent to the ranks: cannot pickle"):
            function([double, locked])


def test_the_run_has_the_code_of_the_stages():
    code = source_code([double, functools.partial(Model, 3), Model(), "iris:3", len])
    assert code.startswith("def double(batch):\n    return batch\n\nclass Model:")
    assert code.endswith("# model iris:3\n\n# len\n")
    assert code.count("class Model:") == 2
