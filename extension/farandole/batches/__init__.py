"""What a job of `Cluster.map_batches` reads, computes and writes. The driver and the ranks share it."""
