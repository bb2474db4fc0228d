"""Predicts how fast the ranks would train a user's model in each mode of ``fd.sync``, and shows it as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.exceptions import UsageError
from farandole.sizes import size_text
from farandole.times import short_text

HEAD = ("mode", "average", "sent per step", "step", "of the speed without a network")
MODEL_SECONDS = 120.0
REDUCED_BYTES = 16 * 2**20
"""The size of the tensor that `farandole.ranks.preflight.probe` reduces; keep both values equal."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """The predicted speed of a mode.

    - ``mode`` is the argument of ``fd.prepare``, and ``chosen`` is true for the mode that ``fd.sync.auto()`` chooses.
    - ``average`` is the time in seconds that an average spends on the network, and ``step`` the mean time of a step.
    - ``bytes_per_step`` is the mean number of bytes that a rank sends in a step.
    - ``efficiency`` is the speed as a fraction of the speed without communication, from 0 to 1.
    """

    mode: str
    average: float
    bytes_per_step: int
    step: float
    efficiency: float
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """A model's size and speed.

    ``size`` is the number of bytes of its gradients in single precision, and ``step`` the seconds of the slowest rank
    for a forward and a backward pass.
    """

    name: str
    size: int
    step: float

    def __str__(self) -> str:
        size, step = size_text(self.size), short_text(self.step)
        return f"{self.name}: {size} of gradients, {step} for a step without a network"


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """The durations of an all-reduce of one number (``latency``) and of 16 MiB (``large``), in seconds."""

    latency: float
    large: float

    @property
    def rate(self) -> float:
        """The rate at which the world sums 16 MiB, in bytes/s."""
        return REDUCED_BYTES / self.large

    def seconds(self, size: float) -> float:
        """Return how many seconds an all-reduce of ``size`` bytes takes: the latency, and a time for each byte."""
        latency = min(self.latency, self.large)
        return latency + (self.large - latency) * size / REDUCED_BYTES


async def measure(group: RankGroup, backend: str, model: str, batch: str) -> list[dict[str, Any]]:
    """Measure a model on all ranks. ``model`` and ``batch`` are names of variables on the ranks.

    Raises:
        UsageError: the variables are no model and batch, or the ranks do not form a world.
    """
    if not model:
        raise UsageError("`%cluster check --batch NAME` needs `--model NAME`, too, to predict the speed of that model")
    if backend == "none" or len(group.kernels) < 2:
        raise UsageError(
            "`%cluster check --batch` needs two ranks or more that form a world; use the backend horovod or torch."
        )
    call = rank_calls.measure_model(model, batch)
    measured = await group.control(call, what=f"timing steps of {model}", timeout=MODEL_SECONDS)
    if errors := [found["error"] for found in measured if "error" in found]:
        raise UsageError(errors[0])
    return measured


async def predict(
    group: RankGroup, model: str, measured: Sequence[dict[str, Any]], all_reduce: AllReduce
) -> tuple[ModelFigures, tuple[Mode, ...]]:
    """Predict the speed of a model in each mode from what `measure` has found, and the measured all-reduces."""
    figures = _slowest(measured)
    figures["latency"] = all_reduce.latency
    figures["all_reduce"] = all_reduce.seconds(figures["bytes"])
    [rows] = await group.control(
        rank_calls.predict_modes(figures, [found["overheads"] for found in measured]),
        what="predicting the speed",
        timeout=MODEL_SECONDS,
        kernels=group.kernels[:1],
    )
    found = ModelFigures(name=model, size=int(figures["bytes"]), step=figures["step"])
    return found, tuple(Mode(**row) for row in rows)


def _slowest(measured: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the largest values of all ranks."""
    return {name: max(found[name] for found in measured) for name in ("bytes", "forward", "step")}


def mode_row(mode: Mode) -> tuple[str, ...]:
    """Return the table's row for a mode."""
    return (
        f"{mode.mode}{' (auto)' if mode.chosen else ''}",
        short_text(mode.average),
        size_text(mode.bytes_per_step),
        short_text(mode.step),
        f"{mode.efficiency:.2f}",
    )
