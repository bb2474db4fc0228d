"""Check the host names of the hub and of its users, and the hub's certificate."""
