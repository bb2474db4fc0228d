"""``make bench``: run the benches, print a table of the results and write them to results.json next to this file.

``--only fanout --repeats 2`` runs only one bench, with fewer repeats; the other results stay in the file.
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

BENCHES = ("fanout", "growth", "start", "idle", "report", "table", "throughput", "sharding", "state", "recovery")
CONTAINER_BENCHES = ("carry",)
"""Benches that only `make bench-carry` runs, because they need root, an engine and the images of `make images`."""
LARGE_BENCHES = ("scale",)
"""Benches that only `make bench-scale` runs, because they take several minutes with a thousand users."""
NETWORK_BENCHES = ("network", "network.laptop", "network.accuracy")
"""Benches that only `make bench-network` runs, because they take hours, and shape traffic as root."""
SERVING_BENCHES = ("serving", "serving.publishing")
"""Benches that only `make bench-serving` runs, because they take a quarter of an hour."""
STREAM_BENCHES = ("streams",)
"""Benches that only `make bench-stream` runs, because they take several minutes."""
SNAPSHOT_BENCHES = ("snapshot",)
"""Benches that only `make bench-snapshot` runs, because they create 100,000 files for each run."""
DATA_BENCHES = ("data",)
"""Benches that only `make bench-data` runs, because they take a quarter of an hour, and compare with engines that have
an environment of their own."""
REPEATS = 5


def main() -> int:
    """Run the benches; return 0 if all values are within their limits, otherwise 1."""
    options = parse(sys.argv[1:])
    stop_on_signals()
    records: list[Record] = []
    # ipyparallel writes its profile into this temporary folder instead of the user's folder.
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = (
        *(BENCHES + CONTAINER_BENCHES + LARGE_BENCHES + NETWORK_BENCHES),
        *(SERVING_BENCHES + STREAM_BENCHES + SNAPSHOT_BENCHES + DATA_BENCHES),
    )
    parser.add_argument("--only", action="append", choices=every, help="run this bench; can be repeated")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="number of paired runs (default: %(default)s)")
    return parser.parse_args(arguments)


def run(name: str, repeats: int) -> list[Record]:
    """Run a bench and print its results as soon as they are available; return the results."""
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
