"""Publishes versions of data sets on hubs with containers: a short-lived container copies a folder of a user's home."""
