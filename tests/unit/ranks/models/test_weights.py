"""`fd.load_weights` loads safetensors into a model, and names what does not fit."""

import json
from pathlib import Path
from typing import Any

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from safetensors.torch import save_file
from torch import nn


class Model(nn.Module):
    """A model with a tied parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(3)


def values(**changes: Any) -> dict[str, torch.Tensor]:
    found = {name: torch.rand(value.shape) for name, value in Model().state_dict().items() if "head" not in name}
    found["norm.num_batches_tracked"] = torch.tensor(7)
    return {name: value for name, value in (found | changes).items() if value is not None}


def check(model: nn.Module, stored: dict[str, torch.Tensor]) -> None:
    own = model.state_dict()
    assert own.keys() - stored.keys() == {"head.weight"}
    for name, value in stored.items():
        torch.testing.assert_close(own[name], value.to(own[name].dtype), rtol=0, atol=0)


def test_a_file_of_one_model_is_loaded(tmp_path: Path) -> None:
    model, stored = Model(), values()
    parameter = model.head.weight
    save_file(stored, tmp_path / "any.safetensors")
    assert fd.load_weights(model, tmp_path / "any.safetensors") == ([], [])
    check(model, stored)
    assert model.head.weight is model.embedding.weight is parameter


def test_the_model_keeps_its_dtype(tmp_path: Path) -> None:
    stored = {name: value.bfloat16() if value.is_floating_point() else value for name, value in values().items()}
    save_file(stored, tmp_path / "model.safetensors")
    model = Model()
    fd.load_weights(model, str(tmp_path))
    assert model.embedding.weight.dtype == torch.float32
    check(model, stored)


def _split(folder: Path, stored: dict[str, torch.Tensor]) -> None:
    names = {name: f"model-{number % 2 + 1}-of-2.safetensors" for number, name in enumerate(stored)}
    for file in set(names.values()):
        save_file({name: value for name, value in stored.items() if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


@pytest.mark.parametrize("path", [".", "model.safetensors.index.json"])
def test_an_index_names_several_files(tmp_path: Path, path: str) -> None:
    model, stored = Model(), values()
    _split(tmp_path, stored)
    fd.load_weights(model, tmp_path / path)
    check(model, stored)


def test_a_prepared_model_is_loaded(tmp_path: Path) -> None:
    stored = values()
    save_file(stored, tmp_path / "model.safetensors")
    with fd.deferred():
        deferred = Model()
    for made, how in ((deferred, {"mesh": {"shard": 1}}), (Model(), {})):
        model, _, _ = fd.prepare(made, **how)
        fd.load_weights(model, tmp_path)
        check(model, stored)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"embedding.weight": None}, "has no 'embedding.weight', 'head.weight'; give the file of this model"),
        ({"other": torch.ones(1)}, "has 'other', and the model has not; give the file of this model, or strict=False"),
        ({"norm.bias": None, "other": torch.ones(1)}, "has no 'norm.bias', and has 'other', and the model has not"),
        ({f"x{n}": torch.ones(1) for n in range(5)}, "has 'x0', 'x1', 'x2' and 2 others, and the model has not"),
        ({"norm.bias": torch.ones(4)}, r"'norm.bias' has the shape \[4\] in .*, and \[3\] in the model"),
    ],
)
def test_tensors_that_do_not_fit_are_named_and_nothing_is_loaded(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_file(values(**changes), tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=f"fd.load_weights: .*{says}"):
        fd.load_weights(model, tmp_path / "model.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_both_have_is_loaded_if_not_strict(tmp_path: Path) -> None:
    model, stored = Model(), values(**{"norm.bias": None, "other": torch.ones(1)})
    save_file(stored, tmp_path / "model.safetensors")
    assert fd.load_weights(model, tmp_path, strict=False) == (["norm.bias"], ["other"])
    assert torch.equal(model.head.weight, stored["embedding.weight"])
    assert torch.equal(model.norm.bias, torch.zeros(3))
    save_file({"norm.bias": torch.ones(4)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="'norm.bias' has the shape"):
        fd.load_weights(model, tmp_path, strict=False)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.safetensors", None, r"cannot be read: .*; give the path of a file of safetensors"),
        ("model.safetensors", b"x" * 40, r"cannot be read: .*; give the path of a file of safetensors"),
        ("some/where", None, r"cannot be read: .*; give the path of a file of safetensors"),
        (".", None, r"has neither model.safetensors nor model.safetensors.index.json; give the path"),
        ("model.safetensors.index.json", b"{", r"is not the index of files of safetensors: .*; give the path of one"),
        ("model.safetensors.index.json", b"{}", r"is not the index of files of safetensors: .*; give the path of one"),
        ("model.safetensors.index.json", None, r"is not the index of files of safetensors: .*No such file"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "../b.safetensors"}}',
            r"is not the index of files of safetensors: '../b.safetensors' is not below the folder",
        ),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 3}}', r"is not the index of files of safetensors: "),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "b"}}', r"/b cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"fd.load_weights: .*{says}"):
        fd.load_weights(Model(), tmp_path / name)


def test_something_else_than_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="loads into a torch.nn.Module, not a dict"):
        fd.load_weights({}, tmp_path)  # type: ignore[arg-type]
