"""A filter in front of the container engine: it admits what our spawner needs, and nothing else."""
