"""``make bench``: a model that a mesh shards, against the same FSDP2 script under torchrun, and against DDP."""

from bench.sharding.measure import measure as measure
