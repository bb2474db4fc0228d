"""Compares the step times that ``%cluster check --model`` predicts with those of trainings, at three link speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.network import parameters
from bench.network.links import slow_hosts
from bench.network.training import CONFIG, MODEL, start, step_time
from bench.record import Record
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = f"""
COMPUTE = {parameters.COMPUTE_SECONDS}
{MODEL}
net, batch = Model(COMPUTE), torch.ones((), requires_grad=True)
"""


def measure() -> Iterator[Record]:
    """Yield the largest error of the predicted step times, for each speed of the links."""
    for megabits in parameters.PREDICTED_MEGABITS:
        with slow_hosts(parameters.HOSTS, megabits), bench_hub(config=CONFIG):
            yield errors(f"network_prediction_error_percent_{megabits:g}", *_times())


def _times() -> tuple[dict[str, float], dict[str, float]]:
    """Return the predicted and the measured seconds of a step, by mode."""
    with start(parameters.HOSTS) as cluster:
        cluster.run(VARIABLES)
        found = cluster.check(model="net", batch="batch")
        predicted = {mode.mode.removeprefix("sync="): mode.step for mode in found.modes}
        return predicted, {
            sync: step_time(cluster, sync, name="predicted", steps=parameters.SHORT_STEPS)[0] for sync in predicted
        }


def errors(name: str, predicted: dict[str, float], measured: dict[str, float]) -> Record:
    """Return the largest error in percent. The note has all step times, in milliseconds."""
    found = {sync: 100 * abs(predicted[sync] / seconds - 1) for sync, seconds in measured.items()}
    times = [f"{sync} {1000 * predicted[sync]:.0f} : {1000 * seconds:.0f}" for sync, seconds in measured.items()]
    return Record(
        name=name,
        value=max(found.values()),
        unit="%",
        runs=tuple(found.values()),
        limit=f"<= {parameters.PREDICTION_PERCENT:g}",
        note=f"ms a step, predicted : measured: {'; '.join(times)}",
    )
