"""Lets all ranks fail together if one of them fails, so that none waits for it in the next collective."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.world import collectives

T = TypeVar("T")


def agreed(work: Callable[[], T], *kinds: type[Exception]) -> T:
    """Do some work, and return this rank's result. All ranks must call this together.

    If the work fails on some ranks, all ranks raise the error of the lowest of them, if it is one of ``kinds``. Of any
    other error, that rank has the traceback, and the others raise UsageError.
    """
    failure: Exception | None = None
    try:
        result = work()
    except Exception as exc:  # noqa: BLE001 - the other ranks must not wait for this one
        failure = exc
    own = None if failure is None else (_number(failure, kinds), f"{type(failure).__name__}: {failure}", str(failure))
    answers = [pickle.loads(answer) for answer in collectives.gather_bytes(pickle.dumps(own))]
    failed = [rank for rank, answer in enumerate(answers) if answer is not None]
    if not failed:
        return result
    number, described, text = answers[failed[0]]
    if number is not None:
        where = "" if len(failed) == len(answers) else f" (on rank {failed[0]})"
        raise kinds[number](f"{text}{where}") from failure
    if failure is not None and context.rank() == failed[0]:
        raise failure
    raise UsageError(f"rank {failed[0]} has failed, and the others cannot continue without it: {described}")


def _number(failure: Exception, kinds: tuple[type[Exception], ...]) -> int | None:
    return next((number for number, kind in enumerate(kinds) if isinstance(failure, kind)), None)
