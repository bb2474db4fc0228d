"""Compares the test accuracy of the modes of ``fd.sync``, and the time in which several hosts reach that of one.

Each training is a run on this machine, since accuracy does not depend on the network. The learning rate of each mode is
that with the best mean accuracy on the validation images. The results of trainings are kept in a file, so that a bench
that was stopped continues. The step times are those that `bench.network` has measured.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from farandole import Cluster
from farandole.ranks.training.sync.choice.prediction import BITS
from farandole.ranks.training.sync.choice.trial import STEPS as TRIAL_STEPS

from bench.network import parameters
from bench.notebook import silence
from bench.record import Record
from bench.site import quiet
from tests.data import cinic10

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent.parent
CELL = (FOLDER / "loops" / "network_accuracy.py").read_text(encoding="utf-8")
CELL_DIGEST = hashlib.blake2b(CELL.encode(), digest_size=8).hexdigest()
DONE = FOLDER.parent / "build" / "network-accuracy.jsonl"
RESULTS = FOLDER / "results.json"
CHOICE = re.compile(
    r"averaging (?:after each step|every (?P<every>\d+) steps) in (?P<bits>\d+) bits"
    r"(?: beside the training, (?P<delay>\d+) steps? late)?"
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
    def key(self) -> str:
        """The line in the file `DONE` that belongs to this training, without its result."""
        return json.dumps({**asdict(self), "batch": parameters.BATCH, "data": data().name, "cell": CELL_DIGEST})

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
    """Runs trainings, several at a time, and keeps their accuracies in the file `DONE`."""

    def __init__(self) -> None:
        # Each process has clusters of its own, whose ranks end with it.
        count = max(1, (os.cpu_count() or 1) // parameters.HOSTS)
        self._pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        lines = DONE.read_text(encoding="utf-8").splitlines() if DONE.exists() else []
        self._done = {json.dumps(one["training"]): one["accuracy"] for one in map(json.loads, lines)}

    def accuracies(self, trainings: Sequence[Training], split: str) -> list[float]:
        """Return the accuracy after each training on the images of a split, in percent."""
        started = {self._pool.submit(train, one): one.key for one in trainings if one.key not in self._done}
        for future in as_completed(started):
            self._keep(started[future], future.result())
        return [100 * self._done[one.key][split] for one in trainings]

    def close(self) -> None:
        """Stop all ranks. Trainings that have not begun are left out."""
        self._pool.shutdown(cancel_futures=True)

    def _keep(self, key: str, accuracies: dict[str, float]) -> None:
        self._done[key] = accuracies
        DONE.parent.mkdir(exist_ok=True)
        with DONE.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"training": json.loads(key), "accuracy": accuracies}) + "\n")


def train(training: Training) -> dict[str, float]:
    """Return the accuracy after a training, by split, as a fraction of the images."""
    with silence():
        run = _cluster(training.ranks).train(training.code, name=training.mode)
    found: dict[str, float] = run.results[0]
    return found


@functools.cache
def _cluster(ranks: int) -> Cluster:
    """Return this process's cluster of this many ranks."""
    return Cluster.start(local=True, name=f"accuracy{ranks}", ranks=ranks, backend="torch", progress=quiet)


def measure(_repeats: int) -> Iterator[Record]:
    """Yield the accuracy of each mode, its mean paired difference to mode step, and the time to accuracy."""
    chosen = {hosts: _chosen(hosts) for hosts in range(parameters.HOSTS, 1, -1)}
    modes = {**parameters.ACCURACY_MODES, "auto": chosen[parameters.HOSTS][0]}
    trainings = Trainings()
    try:
        yield from _compare(trainings, modes, parameters.EPOCHS)
        short = {name: modes[name] for name in ("step", *parameters.SHORT_MODES)}
        yield from _compare(trainings, short, parameters.SHORT_EPOCHS, f"_{parameters.SHORT_EPOCHS}_epochs")
        for hosts, (mode, efficiency) in chosen.items():
            yield _time_to_accuracy(trainings, hosts, mode, efficiency)
    finally:
        trainings.close()


def _compare(trainings: Trainings, modes: dict[str, str], epochs: int, suffix: str = "") -> Iterator[Record]:
    """Yield the mean test accuracy of each mode after ``epochs`` epochs, and its gap to mode ``step``."""
    rates = _best_rates(trainings, list(modes.values()), parameters.HOSTS, epochs)
    found = {
        name: trainings.accuracies(_seeds(mode, rates[mode], epochs, parameters.HOSTS), "test")
        for name, mode in modes.items()
    }
    for name, accuracies in found.items():
        yield _mean(f"network_accuracy_{name}{suffix}", accuracies, f"learning rate {rates[modes[name]]:g}")
        if name != "step":
            differences = [step - own for step, own in zip(found["step"], accuracies, strict=True)]
            yield _gap(f"{name}{suffix}", differences)


def _chosen(hosts: int) -> tuple[str, float]:
    """Return the value of ``sync`` that auto has chosen in the measurement of speeds, and its efficiency there."""
    name = f"network_efficiency_{hosts}"
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = CHOICE.search(results.get(name, {}).get("note", ""))
    if found is None:
        raise SystemExit(f"{RESULTS} has no {name}; run bench/run.py --only network first.")
    every, delay = int(found["every"] or 1), int(found["delay"] or 0)
    payload = {bits: payload for payload, bits in BITS.items()}[int(found["bits"])]
    # The steps in which auto measures are a warm-up.
    chosen = f'fd.sync.local(every={every}, delay={delay}, payload="{payload}", warmup={TRIAL_STEPS})'
    return chosen, float(results[name]["value"])


def _best_rates(trainings: Trainings, modes: Sequence[str], ranks: int, epochs: int) -> dict[str, float]:
    """Return for each mode the learning rate with the best mean accuracy on the validation images."""
    tried = [one for mode in modes for rate in parameters.RATES for one in _seeds(mode, rate, epochs, ranks)]
    sums: dict[tuple[str, float], float] = {}
    for training, accuracy in zip(tried, trainings.accuracies(tried, "valid"), strict=True):
        place = training.mode, training.rate
        sums[place] = sums.get(place, 0) + accuracy
    return {mode: max(parameters.RATES, key=lambda rate, mode=mode: sums[mode, rate]) for mode in modes}


def _seeds(mode: str, rate: float, epochs: int, ranks: int) -> list[Training]:
    return [Training(mode=mode, ranks=ranks, rate=rate, epochs=epochs, seed=seed) for seed in range(parameters.SEEDS)]


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


def _time_to_accuracy(trainings: Trainings, hosts: int, mode: str, efficiency: float) -> Record:
    """Return the time in which several hosts reach the accuracy of one host's schedule, as a fraction of its time.

    The result is that of the shortest schedule whose accuracy is at least that of one host, or infinity without such a
    schedule. The learning rate is chosen for each schedule. The note lists the accuracies.
    """
    length, step = parameters.EPOCHS_ALONE, parameters.ACCURACY_MODES["step"]
    goal = _accuracy(trainings, step, 1, length)
    reached, found = math.inf, []
    for epochs in parameters.SCHEDULES:
        several = _accuracy(trainings, mode, hosts, epochs)
        found.append(f"{several:.1f} % after {epochs} epochs")
        if several >= goal:
            reached = epochs / length / hosts / efficiency
            break
    note = f"{', '.join(found)}; {goal:.1f} % with one host after {length}"
    return Record(
        name=f"network_time_to_accuracy_{hosts}",
        value=reached,
        unit="of one host's time",
        runs=(reached,),
        limit=f"<= {parameters.TIME_TO_ACCURACY:g}",
        note=note,
    )


def _accuracy(trainings: Trainings, mode: str, ranks: int, epochs: int) -> float:
    """Return the mean accuracy on the validation and the test images with the best learning rate, in percent.

    Both splits have the same number of images. The test images alone are too few to distinguish the accuracies that are
    compared here.
    """
    rate = _best_rates(trainings, [mode], ranks, epochs)[mode]
    seeds = _seeds(mode, rate, epochs, ranks)
    return fmean(accuracy for split in ("valid", "test") for accuracy in trainings.accuracies(seeds, split))
