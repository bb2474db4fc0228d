"""Compare the throughput of a sharded model in a cell with that of FSDP2 and of DDP under torchrun.

Both sides train in turns, as in `bench.throughput`. The ranks are on one machine, so that its processors and its memory
bandwidth limit the speed at which parameters are gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.notebook import make_shell
from bench.record import Record, ratio_of_pairs
from bench.site import bench_hub
from bench.throughput import code, pair

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERS = {"shard_ratio_torch": ("torch_fsdp", ">= 0.98"), "shard_ratio_ddp": ("torch_ddp", "")}
"""The code of the other side, and the limit."""


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records shard_ratio_torch and shard_ratio_ddp; the side that trains first alternates."""
    shell = make_shell()
    with bench_hub():
        ours = code("torch_world", "shard", "sharding_model")
        for name, (other, limit) in OTHERS.items():
            theirs = code("torch_world", other, "sharding_model")
            pairs = [pair(shell, "torch", ours, theirs, ours_first=run % 2 == 0) for run in range(repeats)]
            yield ratio_of_pairs(name, pairs, limit=limit, note="samples / s")
