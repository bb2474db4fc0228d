"""``make bench-serving``: endpoints against KServe's own server, through the hub, and while versions are switched."""

from bench.serving.measure import measure as measure
