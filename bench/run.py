"""Run the benches, print a table and write results.json beside this file: ``make bench``.

``--only fanout --repeats 2`` runs one of them with fewer repeats; other results in the file stay.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent)]

from bench.record import Record, save, table  # noqa: E402 - needs the line above
from bench.site import THREADS, environment  # noqa: E402
from hub.up import stop_on_signals  # noqa: E402

BENCHES = ("fanout", "growth", "start", "report", "throughput", "state", "recovery")
CONTAINER_BENCHES = ("carry",)
"""Run only by `make bench-carry`: these need root, a container engine and the images of `make images`."""
LARGE_BENCHES = ("scale",)
"""Run only by `make bench-scale`: a thousand users take several minutes."""
REPEATS = 5


def main() -> int:
    """Return 0 if all values are within their limits."""
    options = parse(sys.argv[1:])
    stop_on_signals()
    records: list[Record] = []
    # ipyparallel writes its profile to this directory instead of the user's.
    with (
        tempfile.TemporaryDirectory(prefix="farandole-ipython-") as folder,
        environment(THREADS | {"IPYTHONDIR": folder}),
    ):
        for name in options.only or BENCHES:
            records += run(name, options.repeats)
            save(records, FOLDER / "results.json")
    print("\n" + table(records))
    return 0 if all(record.kept for record in records) else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = BENCHES + CONTAINER_BENCHES + LARGE_BENCHES
    parser.add_argument("--only", action="append", choices=every, help="run this bench; can be repeated")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="number of paired runs (default: %(default)s)")
    return parser.parse_args(arguments)


def run(name: str, repeats: int) -> list[Record]:
    """Run one bench, with one thread per process on both sides, and print each result."""
    print(f"{name} ...", flush=True)
    began = time.perf_counter()
    records = []
    for record in importlib.import_module(f"bench.{name}").measure(repeats):
        print(f"  {record.name} {record.value:.4g} {record.unit} {record.note}", flush=True)
        records.append(record)
    print(f"  took {time.perf_counter() - began:.0f} s", flush=True)
    return records


if __name__ == "__main__":
    sys.exit(main())
