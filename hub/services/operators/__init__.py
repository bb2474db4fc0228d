"""The hub's service for operators: a page of who uses what, and metrics for Prometheus."""
