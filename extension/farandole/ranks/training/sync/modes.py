"""The modes in which ranks keep their models in step. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean

PAYLOADS = ("fp32", "fp16", "int8", "int4")
COMPRESSIONS = ("fp16", "powersgd")
SCHEDULES = ("fixed", "quadratic")
LONGEST_DELAY = 6
DEFAULT_WARMUP = 30
"""Averages that are late cost most accuracy in the first steps, in which parameters change most."""


class Sync:
    """Base class of the modes. Each mode is a frozen dataclass that refuses wrong values when it is created."""

    name: ClassVar[str]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Step(Sync):
    """Every backward pass averages the gradients over all ranks."""

    name: ClassVar[str] = "step"


@dataclass(frozen=True)
class Compressed(Sync):
    """As `Step`, with gradients that are compressed before they are sent.

    Attributes:
        method: ``fp16`` sends half precision. ``powersgd`` sends low-rank factors of each gradient matrix
            (Vogels et al., 2019) and is available with the torch backend.
        rank: rank of the factors of ``powersgd``.
    """

    name: ClassVar[str] = "compressed"
    method: str = "fp16"
    rank: int = 2

    def __post_init__(self) -> None:
        _check_choice("compressed", "method", self.method, COMPRESSIONS)
        _check_at_least("compressed", "rank", self.rank, 1)

    def __str__(self) -> str:
        return f"compressed, {self.method}" + f" rank {self.rank}" * (self.method == "powersgd")


@dataclass(frozen=True, kw_only=True)
class Local(Sync):
    """Ranks train on their own and average their parameters every few steps, while they train on.

    Attributes:
        every: optimizer steps between two averages.
        delay: optimizer steps from the start of an average to its use; fewer than ``every``. With 0, ranks wait for
            each average.
        payload: how parameters travel: ``fp32``, ``fp16``, ``int8`` or ``int4``.
        warmup: optimizer steps at the start during which ranks average after every step and wait for the average.
        schedule: ``fixed``, or ``quadratic``, which averages less often as the learning rate falls.
    """

    name: ClassVar[str] = "local"
    every: int = 16
    delay: int = LONGEST_DELAY
    payload: str = "fp16"
    warmup: int = DEFAULT_WARMUP
    schedule: str = "fixed"

    def __post_init__(self) -> None:
        _check_at_least("local", "every", self.every, 1)
        _check_at_least("local", "delay", self.delay, 0)
        _check_at_least("local", "warmup", self.warmup, 0)
        _check_choice("local", "payload", self.payload, PAYLOADS)
        _check_choice("local", "schedule", self.schedule, SCHEDULES)
        if self.delay >= self.every:
            raise UsageError(
                f"fd.sync.local: delay is {self.delay} with every={self.every}; an average has to be used before the "
                f"next one starts, so delay must be less than every."
            )

    def __str__(self) -> str:
        interval = "step" if self.every == 1 else f"{self.every} steps"
        return f"local, {self.payload} every {interval}"


@dataclass(frozen=True)
class Auto(Sync):
    """As `Local`, with an interval and a payload that are chosen after the first steps."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Sync):
    """Ranks train on their own and exchange changes with a parameter server on rank 0. None waits for a slower one.

    Attributes:
        every: optimizer steps of a rank between two exchanges.
        quorum: ranks whose changes a rank's next parameters contain, including itself.
        grace: seconds after which a rank gets the parameters without those of the quorum.
        payload: how changes travel: ``fp32``, ``fp16``, ``int8`` or ``int4``.
    """

    name: ClassVar[str] = "asynchronous"
    every: int = 16
    quorum: int = 1
    grace: float = 1.0
    payload: str = "fp16"

    def __post_init__(self) -> None:
        _check_at_least("asynchronous", "every", self.every, 1)
        _check_at_least("asynchronous", "quorum", self.quorum, 1)
        _check_choice("asynchronous", "payload", self.payload, PAYLOADS)
        if not isinstance(self.grace, int | float) or not 0 <= self.grace < float("inf"):
            raise UsageError(
                f"fd.sync.asynchronous: grace is {self.grace!r}; it must be a number of seconds, 0 or more."
            )

    def __str__(self) -> str:
        return f"asynchronous, {self.payload} every {self.every} steps"


def default_delay(every: int) -> int:
    """Return the steps from the start of an average to its use, if the user gives none."""
    return min(LONGEST_DELAY, every - 1)


def parsed(sync: object) -> Sync:
    """Return the mode that the argument ``sync`` of ``fd.prepare`` stands for.

    Raises:
        UsageError: it is neither ``"step"`` nor a mode that a function of ``fd.sync`` has returned.
    """
    if isinstance(sync, Sync):
        return sync
    if sync == Step.name:
        return Step()
    hint = " Call the function, e.g. sync=fd.sync.local(every=16)." if callable(sync) else ""
    raise UsageError(
        f'fd.prepare: sync is {sync!r:.60}; it must be "step", fd.sync.auto(), fd.sync.local(...), '
        f"fd.sync.asynchronous(...) or fd.sync.compressed(...).{hint}"
    )


def _check_choice(mode: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise UsageError(f"fd.sync.{mode}: {name} is {value!r}; it must be one of: {', '.join(choices)}.{hint}")


def _check_at_least(mode: str, name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"fd.sync.{mode}: {name} is {value!r}; it must be a whole number of at least {least}.")
