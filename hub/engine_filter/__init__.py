"""A filter in front of the container engine, which admits only the requests that the hub's spawner needs."""
