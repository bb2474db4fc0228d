"""The stages of a job, which compute one batch from another."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from farandole.batches.columns import Batch, BatchError, count_rows, shortened
from farandole.batches.models import ModelStage
from farandole.exceptions import FarandoleError, ModelError, RankError

ROLE = "farandole/batches/"
"""The frames of a traceback in this folder are not shown to users."""
USER_ERRORS = (Exception, SystemExit)
"""What the user's code may raise. Dask would end its worker at a SystemExit, which may come from argparse."""


class StageError(Exception):
    """Raised if a stage, or the source, raises an error for some rows."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = shortened(f"{type(error).__name__}: {error}")
        self.traceback = traceback_of(error)


class Chain:
    """Stages that were made in this process."""

    def __init__(self, stages: Sequence[Any]) -> None:
        self._stages = [(name_of(stage, place), _made(stage, place)) for place, stage in enumerate(stages, 1)]

    @property
    def last(self) -> str:
        """The name of the last stage."""
        return self._stages[-1][0]

    def __call__(self, batch: Batch, rows: int) -> Batch:
        """Return the result of the last stage for a batch with so many rows.

        Raises:
            StageError: a stage raised an error.
            RankError: the result of a stage is no batch, or has another number of rows, or a model has other inputs.
        """
        for name, stage in self._stages:
            try:
                found = stage(batch)
            except ModelError as exc:
                raise RankError(f"{name}: {exc}") from exc
            except USER_ERRORS as exc:
                raise StageError(name, exc) from exc
            check_rows(name, found, rows)
            batch = found
        return batch


def name_of(stage: Any, place: int) -> str:
    """Return the name of a stage in messages, such as ``stage 1 (decode)``."""
    return f"stage {place} ({title_of(stage)})"


def title_of(stage: Any) -> str:
    """Return the name of a function or a class, or a model's name and version."""
    if isinstance(stage, str):
        return stage
    plain = stage.func if isinstance(stage, functools.partial) else stage
    return str(getattr(plain, "__name__", type(plain).__name__))


def is_class(stage: Any) -> bool:
    """Return whether a rank makes an instance of a stage."""
    return inspect.isclass(stage.func if isinstance(stage, functools.partial) else stage)


def _made(stage: Any, place: int) -> Callable[[Batch], Any]:
    try:
        if isinstance(stage, str):
            return ModelStage(stage)
        made: Callable[[Batch], Any] = stage() if is_class(stage) else stage
    except FarandoleError as exc:
        raise RankError(f"{name_of(stage, place)} could not be made on a rank: {exc}") from exc
    except USER_ERRORS as exc:
        raise RankError(
            f"{name_of(stage, place)} could not be made on a rank: {type(exc).__name__}: {exc}. It is made without "
            "arguments; use functools.partial for those, and check that the workers have its packages and files",
            traceback=traceback_of(exc),
        ) from exc
    return made


def check_rows(name: str, batch: Any, rows: int) -> None:
    """Raise RankError unless what a stage returned is a batch with so many rows."""
    try:
        counts = count_rows(batch)
    except BatchError as exc:
        raise RankError(f"{name} {exc}") from exc
    for column, count in counts.items():
        if count != rows:
            raise RankError(
                f"{name} returned {count} rows in the column {column!r} for a batch of {rows}. A stage returns one row "
                "for each of its rows; return several values for a row as a list"
            )


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error in the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if ROLE not in frame.filename]
    return "".join(
        [
            "Traceback (most recent call last):\n",
            *traceback.format_list(frames),
            *traceback.format_exception_only(error),
        ]
    )
