"""Growth of the costs of hub, proxy and driver: ``make bench-scale``."""

from bench.scale.measure import measure

__all__ = ["measure"]
