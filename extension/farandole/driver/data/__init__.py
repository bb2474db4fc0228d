"""Dask on the ranks of a cluster: the scheduler and the client, which run in the driver's process."""
