"""``make bench-stream``: records of a stream, while processes are killed, and at a thousand a second."""

from bench.streams.measure import measure as measure
