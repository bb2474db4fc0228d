"""Drives a run as a notebook's kernel would. `python -m tests.chaos.driver` reads its task from a line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from farandole import Cluster, Elastic
from farandole.exceptions import RankError
from farandole.runs.run import Run
from farandole.runs.store import RunStore

RUN = "run"
OUTCOME = "outcome"


def lead(task: dict[str, Any]) -> None:
    """Start the run, or attach to it if it has already started, and stop the cluster when the run has ended."""
    folder = Path(task["folder"])
    where = {"store": RunStore(Path(task["store"])), **task["where"]}
    if (folder / RUN).exists():
        cluster = Cluster.attach(task["cluster"], **where)
        run_id = (folder / RUN).read_text()
        known = cluster.background.get(run_id)
        # If the run ended before the previous driver was killed, the outcome is in the run's files.
        run = known.run if known else cluster.store.load(run_id)
    else:
        cluster = Cluster.start(task["workers"], name=task["cluster"], backend=task["backend"], **where)
        run = cluster.train(task["code"], name="chaos", elastic=Elastic(), detach=True)
        _put(folder / RUN, run.id)
    outcome = _end_of(run)
    cluster.stop()
    _put(folder / OUTCOME, outcome)


def _end_of(run: Run) -> str:
    try:
        return str(run.wait().status)
    except RankError as exc:
        return f"{run.status}: {exc}"


def _put(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


if __name__ == "__main__":
    lead(json.loads(sys.stdin.readline()))
