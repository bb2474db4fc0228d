"""Runs the tests in lanes, which are concurrent pytest processes: `python -m tests.lanes [PYTEST ARGUMENTS]`.

The integration tests of elastic runs, faults and templates, the contract tests, and the tests of users' libraries and
of files of earlier versions share a lane. The browser tests, the other integration tests and the unit tests have a lane
each. At most `LANES` of these lanes run at the same time, the longest first. The tests of idle servers hardly use the
processor, so their lane runs beside the others, unless `LANES` is 1.

The output of a lane is printed when the lane ends, so that the lines of different lanes do not mix.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import pytest

from tests.variables import VARIABLES

ELSEWHERE = ("tests/docker", "tests/kubernetes")
"""The folders of tests that need a container engine. These tests have separate make targets."""
END_LINES = 25
"""The number of last lines of a failed lane that are printed again after the output of all lanes."""
LANES = 3
"""The number of lanes that run at the same time, unless the environment variable of this name is set.

The hubs, clusters and browsers of a lane use processor time even while they are idle. With many more lanes than
processors, all tests take longer.
"""
WAITING = (
    *(f"tests/integration/test_{name}.py" for name in ("elastic", "faults", "takeover", "templates")),
    *("tests/contract", "tests/libraries", "tests/compat"),
)
IDLE = "idle"
"""The name of the lane that runs beside the others."""


def lanes() -> dict[str, list[str]]:
    """Return pytest's arguments for each lane. The lane `integration` runs all tests that no other lane selects."""
    unit, browser, waiting = ["tests/unit"], ["tests/browser"], [*WAITING]
    idle = ["tests/integration/test_idle.py"]
    others = (*unit, *browser, *waiting, *idle, *ELSEWHERE)
    integration = ["tests", *(f"--ignore={path}" for path in others)]
    return {"waiting and contract": waiting, IDLE: idle, "integration": integration, "unit": unit, "browser": browser}


@dataclass(frozen=True)
class Ended:
    """The result of a lane that has ended."""

    name: str
    status: int
    output: bytes
    seconds: float

    def show(self) -> None:
        """Print the lane's output and duration."""
        sys.stdout.buffer.write(f"\n--- lane {self.name}\n".encode() + self.output)
        minutes, seconds = divmod(round(self.seconds), 60)
        print(f"--- lane {self.name} took {minutes}:{seconds:02} min", flush=True)

    @property
    def failed(self) -> bool:
        """Whether any test of the lane failed. A lane without selected tests has not failed."""
        return self.status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

    def show_end(self) -> None:
        """Print the last lines of the lane's output again. They name the tests that failed."""
        end = self.output.decode(errors="replace").splitlines()[-END_LINES:]
        print(f"\n--- lane {self.name} ended with status {self.status}:", *end, sep="\n", flush=True)


def run_lane(name: str, arguments: list[str]) -> Ended:
    """Run pytest for a lane, and return the result."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {**os.environ, **VARIABLES}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return Ended(name, done.returncode, done.stdout, time.monotonic() - begun)


def run(arguments: list[str]) -> int:
    """Run all lanes, print the output of each lane when it ends, and return one exit status for all lanes.

    The last lines of failed lanes are printed again at the end.
    """
    ended, most = [], int(os.environ.get("LANES", LANES))
    with ThreadPoolExecutor(most) as pool, ThreadPoolExecutor(1) as extra:
        pools = {IDLE: extra} if most > 1 else {}
        running = [pools.get(name, pool).submit(run_lane, name, [*own, *arguments]) for name, own in lanes().items()]
        for future in as_completed(running):
            future.result().show()
            ended.append(future.result())
    for lane in ended:
        if lane.failed:
            lane.show_end()
    return worst([lane.status for lane in ended])


def worst(statuses: list[int]) -> int:
    """Return the status of a failed lane, if any. A lane without selected tests fails only if all lanes have none."""
    failed = set(statuses) - {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    return failed.pop() if failed else min(statuses)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
