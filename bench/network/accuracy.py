"""Compares the test accuracy of the modes of ``fd.sync``, and the time in which three hosts reach that of one.

Each training is a run of three ranks on this machine, since accuracy does not depend on the network. The learning rate
of each mode is that with the best accuracy on the validation images. The results of trainings are kept in a file, so
that a bench that was stopped continues. The step times are those that `bench.network` has measured.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from farandole import Cluster

from bench.network import parameters
from bench.notebook import silence
from bench.record import Record
from bench.site import quiet
from tests.data import cinic10

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent.parent
CELL = (FOLDER / "loops" / "network_accuracy.py").read_text(encoding="utf-8")
DONE = FOLDER.parent / "build" / "network-accuracy.jsonl"
RESULTS = FOLDER / "results.json"
CHOICE = re.compile(
    r"averaging (?:after each step|every (?P<every>\d+) steps) in (?P<bits>\d+) bits(?P<beside> beside)?"
)
"""The part of the notice of mode auto that says what it has chosen."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training: its value of ``sync`` and its ranks, its learning rate, its length and its seed."""

    mode: str
    ranks: int
    rate: float
    epochs: int
    seed: int

    @property
    def code(self) -> str:
        """The cell, after lines that set its parameters."""
        names = {
            "DATA": str(data()),
            "BATCH": parameters.BATCH,
            "EPOCHS": self.epochs,
            "RATE": self.rate,
            "SEED": self.seed,
        }
        lines = [f"{name} = {value!r}" for name, value in names.items()]
        return "\n".join([*lines, "import farandole as fd", f"SYNC = {self.mode}", CELL])


def data() -> Path:
    """Return the folder of the images. The images that tests make for themselves are too few for this bench."""
    if "FARANDOLE_DATA" not in os.environ:
        raise SystemExit(
            "The accuracy bench needs the images of cinic10-mini: set FARANDOLE_DATA to the folder above it."
        )
    return cinic10(FOLDER)


class Trainings:
    """Runs trainings, and keeps their accuracies in the file `DONE`."""

    def __init__(self) -> None:
        self._clusters: dict[int, Cluster] = {}
        lines = DONE.read_text(encoding="utf-8").splitlines() if DONE.exists() else []
        self._done = {self._key(one["training"]): one["accuracy"] for one in map(json.loads, lines)}

    def accuracy(self, training: Training, split: str) -> float:
        """Return the accuracy after a training on the images of a split, in percent."""
        key = self._key(asdict(training) | {"data": str(data())})
        if key not in self._done:
            found = self._cluster(training.ranks).train(training.code, name=training.mode).results[0]
            self._done[key] = found
            DONE.parent.mkdir(exist_ok=True)
            with DONE.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"training": json.loads(key), "accuracy": found}) + "\n")
        return 100 * float(self._done[key][split])

    def close(self) -> None:
        """Stop all ranks."""
        for cluster in self._clusters.values():
            cluster.stop()

    def _cluster(self, ranks: int) -> Cluster:
        if ranks not in self._clusters:
            with silence():
                name = f"accuracy{ranks}"
                self._clusters[ranks] = Cluster.start(
                    local=True, name=name, ranks=ranks, backend="torch", progress=quiet
                )
        return self._clusters[ranks]

    @staticmethod
    def _key(training: dict[str, object]) -> str:
        return json.dumps(training, sort_keys=True)


def measure(_repeats: int) -> Iterator[Record]:
    """Yield the accuracy of each mode, its mean paired difference to mode step, and the time to accuracy."""
    chosen, efficiency = _chosen()
    trainings = Trainings()
    try:
        step: list[float] = []
        for name, mode in {**parameters.ACCURACY_MODES, "auto": chosen}.items():
            rate = _best_rate(trainings, mode, parameters.HOSTS)
            found = _accuracies(trainings, mode, rate, parameters.EPOCHS)
            yield _mean(f"network_accuracy_{name}", found, f"learning rate {rate:g}")
            step = step or found
            if name != "step":
                yield _gap(name, [theirs - ours for theirs, ours in zip(step, found, strict=True)])
        yield _time_to_accuracy(trainings, chosen, rate, efficiency)
    finally:
        trainings.close()


def _chosen() -> tuple[str, float]:
    """Return the value of ``sync`` that auto has chosen in the measurement of speeds, and its efficiency there."""
    name = f"network_efficiency_{parameters.HOSTS}"
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = CHOICE.search(results.get(name, {}).get("note", ""))
    if found is None:
        raise SystemExit(f"{RESULTS} has no {name}; run bench/run.py --only network first.")
    every = int(found["every"] or 1)
    payload = {"32": "fp32", "16": "fp16", "8": "int8", "4": "int4"}[found["bits"]]
    delay = "" if found["beside"] else ", delay=0"
    return f'fd.sync.local(every={every}{delay}, payload="{payload}")', float(results[name]["value"])


def _best_rate(trainings: Trainings, mode: str, ranks: int) -> float:
    def valid(rate: float) -> float:
        return fmean(
            trainings.accuracy(
                Training(mode=mode, ranks=ranks, rate=rate, epochs=parameters.EPOCHS, seed=-seed), "valid"
            )
            for seed in range(1, parameters.TUNING_SEEDS + 1)
        )

    return max(parameters.RATES, key=valid)


def _accuracies(
    trainings: Trainings, mode: str, rate: float, epochs: int, ranks: int = parameters.HOSTS
) -> list[float]:
    return [
        trainings.accuracy(Training(mode=mode, ranks=ranks, rate=rate, epochs=epochs, seed=seed), "test")
        for seed in range(parameters.SEEDS)
    ]


def _mean(name: str, found: Sequence[float], note: str) -> Record:
    return Record(name=name, value=fmean(found), unit="%", runs=tuple(found), note=note)


def _gap(mode: str, differences: Sequence[float]) -> Record:
    """Return the mean of the paired differences, with its 95 % interval by Student's t in the note."""
    half = parameters.T_95 * stdev(differences) / math.sqrt(len(differences))
    chosen = mode == "auto"
    return Record(
        name="network_accuracy_gap" if chosen else f"network_accuracy_gap_{mode}",
        value=fmean(differences),
        unit="points",
        runs=tuple(differences),
        limit=f"<= {parameters.GAP_POINTS:g}" if chosen else "",
        note=f"95 % interval ± {half:.2f}",
    )


def _time_to_accuracy(trainings: Trainings, mode: str, rate: float, efficiency: float) -> Record:
    """Return the time in which all hosts reach the accuracy of one host's schedule, as a fraction of one host's time.

    All hosts train with schedules of their own, of which the shortest that reaches the accuracy counts.
    """
    step = parameters.ACCURACY_MODES["step"]
    goal = fmean(_accuracies(trainings, step, _best_rate(trainings, step, 1), parameters.EPOCHS, ranks=1))
    reached = math.inf
    for epochs in parameters.SCHEDULES:
        found = fmean(_accuracies(trainings, mode, rate, epochs))
        if found >= goal:
            reached = epochs / parameters.EPOCHS / parameters.HOSTS / efficiency
            break
    return Record(
        name=f"network_time_to_accuracy_{parameters.HOSTS}",
        value=reached,
        unit="of one host's time",
        runs=(reached,),
        limit=f"<= {parameters.TIME_TO_ACCURACY:g}",
        note=f"{goal:.1f} % is the accuracy of one host",
    )
