"""``fd.load_model``: load a stored model into this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from farandole.exceptions import FarandoleError, ModelError
from farandole.models.model import PROGRAM_FILE, WEIGHTS_FILE, ModelInfo
from farandole.models.store import ModelStore, in_use, verify
from farandole.reading import reason

if TYPE_CHECKING:
    from torch import nn


def load_model(key: str) -> nn.Module:
    """Load a version of a stored model, for example to compute predictions for many rows in a cell.

    Args:
        key: the name and the version, such as ``iris:3``. ``iris`` and ``iris:latest`` are the latest version. A
            model in a group's folder, such as ``vision/iris:3``, has to be copied first, with
            ``%models copy vision/iris:3``, because loading it can run code of the other members.

    Returns:
        torch.nn.Module: the model as it was saved, on the CPU and in evaluation mode. Its parameters need no gradients.
        It takes tensors in the order of the example with which it was saved, or by their names.

    Raises:
        UsageError: the key is not valid.
        ModelNotFoundError: there is no such model or version.
        ModelDamagedError: a file is missing, has changed, or contains a pickle.
        ModelError: the version was saved without an example, other users may have written it, or torch cannot load it.
    """
    # Users who load no model do not need torch.
    from farandole.models.program import load_program

    info = ModelStore().find(key)
    if PROGRAM_FILE not in info.files:
        raise ModelError(
            f"{info} was saved without an example, so it has parameters only; load {info.folder / WEIGHTS_FILE} into a "
            "model of its class, with safetensors.torch.load_file, or save it with `example=x`."
        )
    with in_use(info):
        verify(info)
        with load_errors(info):
            return load_program(info)


@contextmanager
def load_errors(info: ModelInfo) -> Iterator[None]:
    """Raise errors of the libraries that load a version as ModelError."""
    try:
        yield
    except FarandoleError:
        raise
    except Exception as exc:
        # Each library has errors of its own for files that it cannot read.
        raise ModelError(
            f"{info} cannot be loaded: {type(exc).__name__}: {reason(exc)}. Save the model again."
        ) from exc
