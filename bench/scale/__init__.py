"""Measure how the costs of hub, proxy and driver grow: ``make bench-scale``."""

from bench.scale.measure import measure

__all__ = ["measure"]
