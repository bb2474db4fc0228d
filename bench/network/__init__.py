"""``make bench-network``: measure how fast one to three machines on a slow network train in each mode of `fd.sync`."""

from bench.network.measure import measure

__all__ = ["measure"]
