"""Starts, changes and calls endpoints, which serve models or run a user's own servers on the hub."""
