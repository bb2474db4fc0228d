"""One origin for each user: the hub's address, the hosts of its users, and the guard of the hub's own host."""
