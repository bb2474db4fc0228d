"""The address of the hub: its names, and its certificate."""
