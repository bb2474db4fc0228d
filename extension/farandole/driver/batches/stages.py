"""Checks the stages that a user gives `Cluster.map_batches`, and says what distinguishes them from others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import cloudpickle

from farandole.batches.stages import is_class, name_of, title_of
from farandole.datasets.digests import digest
from farandole.exceptions import ModelError, UsageError
from farandole.models.model import PROGRAM_FILE
from farandole.models.store import ModelStore


def checked_stages(stages: Any) -> list[Any]:
    """Return the stages, with the version in the name of each model.

    Raises:
        UsageError: something is no stage.
        ModelNotFoundError, ModelError: there is no such model, or it was saved without an example.
    """
    found = list(stages) if isinstance(stages, list | tuple) else [stages]
    if not found:
        raise UsageError("map_batches needs at least one stage: a function, a class, or the name of a model")
    return [_checked(stage, place) for place, stage in enumerate(found, 1)]


def _checked(stage: Any, place: int) -> Any:
    if isinstance(stage, str):
        return _version_of(stage)
    if not callable(stage):
        raise UsageError(
            f"stage {place} is {stage!r}; a stage is a function of a batch, a class, or the name of a model, such as "
            "'iris:3'"
        )
    plain: Any = stage.func if isinstance(stage, functools.partial) else stage
    if is_class(stage) and not any("__call__" in vars(base) for base in plain.__mro__):
        raise UsageError(f"{name_of(stage, place)} is a class without the method __call__(self, batch); add it")
    return stage


def _version_of(key: str) -> str:
    info = ModelStore().find(key)
    if PROGRAM_FILE not in info.files:
        raise ModelError(
            f"{info} was saved without an example, so ranks cannot load it; save it with `example=x`, or load its "
            "parameters in a class"
        )
    return str(info)


def identities(stages: Sequence[Any]) -> list[dict[str, str]]:
    """Return the name of each stage and the digest of its code or of its files, for the manifest."""
    return [{"name": title_of(stage), "code": _digest(stage, place)} for place, stage in enumerate(stages, 1)]


def _digest(stage: Any, place: int) -> str:
    if isinstance(stage, str):
        files = ModelStore().find(stage).files
        return digest({name: file.sha256 for name, file in sorted(files.items())})
    try:
        return digest(stage)
    except Exception as exc:
        raise _unsendable(stage, place, exc) from exc


def packed(stages: Sequence[Any]) -> bytes:
    """Return the pickle of all stages. Raises UsageError if one of them cannot be pickled."""
    for place, stage in enumerate(stages, 1):
        try:
            cloudpickle.dumps(stage)
        except Exception as exc:
            raise _unsendable(stage, place, exc) from exc
    data: bytes = cloudpickle.dumps(list(stages))
    return data


def _unsendable(stage: Any, place: int, exc: Exception) -> UsageError:
    return UsageError(
        f"{name_of(stage, place)} cannot be sent to the ranks: {exc}. Make what it uses in the method __init__ of a "
        "class, which each rank calls"
    )


def source_code(stages: Sequence[Any]) -> str:
    """Return the code of the stages, for the run."""
    return "\n\n".join(_source_of(stage).strip("\n") for stage in stages) + "\n"


def _source_of(stage: Any) -> str:
    if isinstance(stage, str):
        return f"# model {stage}"
    plain = stage.func if isinstance(stage, functools.partial) else stage
    try:
        return inspect.getsource(plain if inspect.isroutine(plain) or inspect.isclass(plain) else type(plain))
    except (OSError, TypeError):
        # It was made in a console or in C.
        return f"# {title_of(stage)}"
