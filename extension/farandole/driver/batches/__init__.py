"""The side of the driver in a job of `Cluster.map_batches`: its source, plan and output folder, and its tasks."""
