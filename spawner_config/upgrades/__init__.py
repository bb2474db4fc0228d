"""Upgrades of the hub's state: its database, and the file that records which version has used the state."""
