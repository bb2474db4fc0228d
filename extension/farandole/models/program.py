"""Loads the program of a version with torch, and reads no pickle."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import nn

from farandole.exceptions import ModelDamagedError, ModelError
from farandole.models.model import PROGRAM_FILE, WEIGHTS_FILE, ModelInfo
from farandole.models.trust import check_writers

SAMPLE_INPUTS = "data/sample_inputs/model.pt"
"""A pickle, unless it is empty, as `fd.save_model` writes it."""
PAYLOAD = re.compile(r"(weight|tensor)_[0-9]+")
CONFIG = re.compile(r"data/(weights|constants)/model_\1_config\.json")
"""These members say for each weight and each constant whether torch unpickles it."""
OTHERS = re.compile(
    rf"archive_format|archive_version|byteorder|version|\.data/[^/]+|models/model\.json"
    rf"|data/(weights|constants)/{PAYLOAD.pattern}"
)
"""The other members that `torch.export.save` writes below one folder. Further ones may be pickles or native code.

Source: torch/export/pt2_archive/_package.py
"""


class LoadedModel(nn.Module):
    """The program of a version. It takes the arguments of the saved model, by place or by name."""

    def __init__(self, program: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        super().train(False)
        self._program = program
        self._signature = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """Compute what the saved model returned in evaluation mode."""
        return self._program(**self._signature.bind(*inputs, **named).arguments)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode. Raises ModelError for another mode."""
        if mode:
            raise ModelError(
                "a stored model computes in evaluation mode only; to train it further, load its "
                f"{WEIGHTS_FILE} into a model of its class, with safetensors.torch.load_file"
            )
        return self


def load_program(info: ModelInfo) -> LoadedModel:
    """Load the program of a version and its parameters, whose digests `farandole.models.store.verify` has compared.

    Loading a program can run code that its author chose, even without a pickle: torch evaluates expressions in it. So
    only programs are loaded that nobody but this user and root can write.

    Raises:
        ModelDamagedError: the program contains what `fd.save_model` does not write.
        ModelError: other users can write the program.
    """
    check_writers(info)
    program = torch.export.load(_checked_archive(info))
    weights = load_file(info.folder / WEIGHTS_FILE)
    for name, old in program.state_dict.items():
        parameter = isinstance(old, nn.Parameter)
        program.state_dict[name] = nn.Parameter(weights[name], False) if parameter else weights[name]
    return LoadedModel(program.module(), [one.name for one in info.inputs])


def _checked_archive(info: ModelInfo) -> io.BytesIO:
    """Return a copy of the program's archive, in which no member is a pickle.

    torch gets the copy, because its reader could find other members in the file than Python's.
    """
    copied = io.BytesIO()
    try:
        with zipfile.ZipFile(info.folder / PROGRAM_FILE) as archive, zipfile.ZipFile(copied, "w") as target:
            members = {name: archive.read(name) for name in archive.namelist()}
            root = next(iter(members), "").partition("/")[0]
            for name, content in members.items():
                if not _is_harmless(name.removeprefix(f"{root}/"), content):
                    raise ModelDamagedError(
                        f"{info} is not loaded: {PROGRAM_FILE} has {name!r}, which fd.save_model does not write, and "
                        "loading it could run any code. Save the model again."
                    )
                target.writestr(name, content)
    except (zipfile.BadZipFile, ValueError, KeyError, AttributeError, TypeError) as exc:
        raise ModelDamagedError(f"{info} is damaged: {PROGRAM_FILE} cannot be read ({exc}).") from exc
    copied.seek(0)
    return copied


def _is_harmless(path: str, content: bytes) -> bool:
    if path == SAMPLE_INPUTS:
        return not content
    if CONFIG.fullmatch(path):
        payloads = json.loads(content)["config"].values()
        return all(one["use_pickle"] is False and PAYLOAD.fullmatch(one["path_name"]) for one in payloads)
    return OTHERS.fullmatch(path) is not None
