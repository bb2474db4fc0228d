"""``make bench-serving``: endpoints against KServe's own server, through the hub, and while versions are switched.

`publishing` measures how models become images.
"""

from bench.serving.measure import measure as measure
