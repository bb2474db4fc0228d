"""``python -m bench.network.plots``: draw the results of `make bench-network` for docs/explanation/slow-networks.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import farandole as fd
import matplotlib as mpl
import matplotlib.pyplot as plt
from farandole.ranks.training.sync.choice.prediction import BITS, Conditions, Overhead
from farandole.ranks.training.sync.modes import Local

from bench.network import parameters

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
TIMES = re.compile(r"takes (?P<average>[\d.]+ m?s) here, a step (?P<step>[\d.]+ m?s)")
"""The part of the notice of mode auto that says what it has measured."""
SIDE = 0.008
"""The horizontal offset between modes with the same speed, so that their error bars do not overlap."""


def main() -> None:
    """Write the pictures. They are the same for the same results."""
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "farandole", "font.size": 11, "axes.spines.top": False})
    mpl.rcParams["axes.spines.right"] = False
    results = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    _write(_speeds(results), "network-speeds")
    _write(_accuracies(results), "network-accuracies")
    _write(_frontier(results), "network-frontier")


def _speeds(results: dict[str, Any]) -> plt.Figure:
    """Draw the speed of each mode on two and on three hosts, as a fraction of the speed without a network."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for hosts in range(2, parameters.HOSTS + 1):
        names = [
            f"network_efficiency_{hosts}" if mode == "auto" else f"network_efficiency_{mode}_{hosts}"
            for mode in parameters.MODES
        ]
        places = [place + 0.4 * (hosts - 2.5) for place in range(len(names))]
        axes.barh(places, [results[name]["value"] for name in names], height=0.38, label=f"{hosts} hosts")
    axes.set_yticks(range(len(parameters.MODES)), list(parameters.MODES))
    axes.invert_yaxis()
    axes.set_xlabel("speed as a fraction of that without a network")
    axes.axvline(parameters.EFFICIENCY, color="grey", linestyle=":")
    axes.legend(frameon=False)
    return figure


def _accuracies(results: dict[str, Any]) -> plt.Figure:
    """Draw the mean differences of test accuracy to mode step, with their 95 % intervals."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    modes = [mode for mode in parameters.ACCURACY_MODES if mode != "step"]
    gaps, halves = _gaps(results, modes)
    axes.errorbar(gaps, range(len(gaps)), xerr=halves, fmt="o")
    axes.set_yticks(range(len(gaps)), modes)
    axes.invert_yaxis()
    axes.set_xlabel("points of accuracy less than mode step")
    axes.axvline(parameters.GAP_POINTS, color="grey", linestyle=":")
    axes.axvline(0, color="grey", linewidth=0.8)
    return figure


def _frontier(results: dict[str, Any]) -> plt.Figure:
    """Draw the gap of the modes with a fixed interval against their speed on three hosts, as it is predicted.

    The prediction has the step and the average that mode auto measures, without the time to encode a payload. Modes
    with the same speed are drawn side by side.
    """
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    measured = TIMES.search(results[f"network_efficiency_{parameters.HOSTS}"]["note"])
    assert measured
    conditions = Conditions(
        step=_seconds(measured["step"]),
        all_reduce=_seconds(measured["average"]),
        ranks=parameters.HOSTS,
        overheads=dict.fromkeys(BITS, Overhead(0.0)),
    )
    modes = {name: eval(mode, {"fd": fd}) for name, mode in parameters.ACCURACY_MODES.items()}
    modes = {name: mode for name, mode in modes.items() if isinstance(mode, Local) and mode.schedule == "fixed"}
    shown: list[float] = []
    for name, mode, gap, half in zip(modes, modes.values(), *_gaps(results, list(modes)), strict=True):
        speed = conditions.efficiency(every=mode.every, delay=mode.delay, payload=mode.payload)
        shown.append(round(speed, 2))
        axes.errorbar(speed - SIDE * (shown.count(shown[-1]) - 1), gap, yerr=half, fmt="o", label=name)
    axes.set_xlabel("speed as a fraction of that without a network")
    axes.set_ylabel("points of accuracy less than mode step")
    axes.axvline(parameters.EFFICIENCY, color="grey", linestyle=":")
    axes.axhline(parameters.GAP_POINTS, color="grey", linestyle=":")
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.93))
    return figure


def _seconds(text: str) -> float:
    """Convert a duration such as 48 ms or 3.82 s to seconds."""
    number, unit = text.split()
    return float(number) / (1000 if unit == "ms" else 1)


def _gaps(results: dict[str, Any], modes: list[str]) -> tuple[list[float], list[float]]:
    """Return the gap of each mode, and half of its 95 % interval, in points."""
    gaps = [results[f"network_accuracy_gap_{mode}"] for mode in modes]
    return [gap["value"] for gap in gaps], [float(gap["note"].rsplit(maxsplit=1)[1]) for gap in gaps]


def _write(figure: plt.Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
