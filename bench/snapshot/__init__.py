"""``make bench-snapshot``: snapshots of a home with 100,000 files, and the time until one of them is restored."""

from bench.snapshot.measure import measure as measure
