"""A filter in front of the container engine that admits only the requests that the hub's spawner needs."""
