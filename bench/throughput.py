"""Compare the throughput of a %%distributed_train cell on two workers with the same loop under horovodrun or torchrun.

Both sides run at the same time and train alternately in short turns, because the speed of a shared machine drifts by
more than the difference to be measured. While a side waits, it polls for a file and its Horovod threads, if any, keep
running; this slows down both sides equally.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.notebook import farandole, make_shell, seconds
from bench.record import Record, ratio_of_pairs
from bench.site import THREADS, bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

LOOPS = Path(__file__).parent / "loops" / "turns"
LAUNCHER_SECONDS = 300
TURNS = 10
TURN_SECONDS = 2.0
PROGRAMS = Path(sys.executable).parent
LAUNCHERS = {
    "horovod": [str(PROGRAMS / "horovodrun"), "-np", "2", "--gloo", sys.executable],
    "torch": [str(PROGRAMS / "torchrun"), "--standalone", "--nproc-per-node", "2"],
}


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records throughput_ratio_horovod and throughput_ratio_torch; the side that trains first alternates."""
    shell = make_shell()
    with bench_hub():
        for backend, files in {"horovod": ("horovod",), "torch": ("torch_world", "torch_ddp")}.items():
            loop = code(*files, "throughput_model")
            pairs = [pair(shell, backend, loop, loop, ours_first=run % 2 == 0) for run in range(repeats)]
            yield ratio_of_pairs(f"throughput_ratio_{backend}", pairs, limit=">= 0.98", note="samples / s")


def code(*names: str) -> str:
    """Return the code of some files of the folder `loops/turns`, one after another."""
    return "\n".join((LOOPS / f"{name}.py").read_text() for name in names)


def pair(shell: InteractiveShell, backend: str, ours: str, theirs: str, *, ours_first: bool) -> tuple[float, float]:
    """Train in a cell and under the launcher of the backend, and return the samples per second of both sides.

    ``ours`` and ``theirs`` are the code of both sides before turns.py.

    The second value is a median over all turns. The first value is scaled so that the ratio of both values is the
    median of the turns' ratios, because only the sides of the same turn are comparable.
    """
    launcher = LAUNCHERS[backend]
    with tempfile.TemporaryDirectory(prefix="farandole-turns-") as name:
        folder = Path(name)
        cell, script = (
            "\n".join([_constants(folder, side, first=(side == "ours") == ours_first), loop, code("turns"), end])
            for side, loop, end in [
                ("ours", ours, "import farandole as fd\nfd.result(rates)"),
                ("theirs", theirs, _WRITE_RATES),
            ]
        )
        (folder / "loop.py").write_text(script)
        with (
            farandole(shell, f"--workers 2 --profile bench --backend {backend}"),
            subprocess.Popen(
                [*launcher, str(folder / "loop.py")],
                env=os.environ | THREADS | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
            ) as process,
        ):
            try:
                seconds(shell, "distributed_train", "-o run", cell)
                if status := process.wait(LAUNCHER_SECONDS):
                    raise subprocess.CalledProcessError(status, launcher)
            finally:
                process.terminate()
        rates = shell.user_ns["run"].result
        others = json.loads((folder / "rates").read_text())
    rate = median(others)
    return rate * median(mine / other for mine, other in zip(rates, others, strict=True)), rate


_WRITE_RATES = """
if rank == 0:
    import json
    (turns / "rates").write_text(json.dumps(rates))
"""


def _constants(folder: Path, side: str, *, first: bool) -> str:
    other = "theirs" if side == "ours" else "ours"
    return (
        f"FOLDER, SIDE, OTHER, FIRST = {str(folder)!r}, {side!r}, {other!r}, {first}\n"
        f"TURNS, SECONDS = {TURNS}, {TURN_SECONDS}"
    )
