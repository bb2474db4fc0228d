"""The Dask worker in the process of a rank."""
