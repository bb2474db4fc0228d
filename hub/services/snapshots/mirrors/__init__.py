"""Mirrors: the hub copies all snapshots and its own state to a second place, and stores the mirrors of other hubs."""
