"""``make bench-scale``: measure how the costs of the hub, proxy and driver grow with the number of users and ranks."""

from bench.scale.measure import measure

__all__ = ["measure"]
