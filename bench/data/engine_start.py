"""Measures how long it takes to start Dask on four ranks that are running, in a process that has not imported Dask."""

from __future__ import annotations

import farandole as fd

from bench.data.job import Job, run

RANKS = 4


def main(job: Job) -> None:
    """Start Dask."""
    with fd.Cluster.start(local=True, ranks=RANKS, backend="none") as cluster:
        job.lap("ranks")
        cluster.dask()
        job.lap("engine")


if __name__ == "__main__":
    run(main)
