"""Folders that are copied between a driver and a cluster."""
