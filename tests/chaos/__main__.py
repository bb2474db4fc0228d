"""Runs a soak test, which injects faults into training runs and then checks the runs.

For example, `python -m tests.chaos --seed 1 --faults 100` injects 100 faults.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hub.up import stop_on_signals
from tests.chaos.containers import docker_site
from tests.chaos.local import local_site
from tests.chaos.schedule import schedule
from tests.chaos.soak import soak
from tests.chaos.summary import summary

SITES = {"local": local_site, "docker": docker_site}
WORKERS = 3


def main() -> int:
    """Inject the faults and print the results. If there are problems, keep the evidence and return 1."""
    asked = _arguments()
    stop_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    kept = folder / "kept"
    say(f"seed {asked.seed}, {asked.faults} faults, on {asked.site}")
    with SITES[asked.site](folder) as site:
        kinds = [kind for kind in site.kinds if kind in (asked.kinds or site.kinds)]
        if not kinds:
            raise SystemExit(f"This machine can inject none of these kinds of faults, only {', '.join(site.kinds)}.")
        say(f"kinds of faults that can be injected here: {', '.join(kinds)}")
        faults = schedule(asked.seed, asked.faults, kinds, site.backends, WORKERS)
        only = [fault for fault in faults if asked.only in (None, fault.number)]
        report = soak(site, only, workers=WORKERS, kept=kept, say=say)
    print(summary(report), flush=True)
    if report.problems:
        print(f"The evidence is in {kept}")
    else:
        shutil.rmtree(folder)
    return 1 if report.problems else 0


def say(text: str) -> None:
    """Print a line with the current time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--site", choices=sorted(SITES), default="local")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--only", type=int, metavar="K", help="inject only fault K of the schedule")
    parser.add_argument("--kinds", type=lambda text: text.split(","), help="inject only these kinds (comma-separated)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
