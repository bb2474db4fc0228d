"""Folders that are copied between a driver and a cluster, and folders for temporary files."""
