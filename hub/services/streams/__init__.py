"""The hub's NATS server: a process that the hub, compose or Kubernetes starts."""
