"""Gives each user a separate origin, and protects the hub's own host from pages on the hosts of users."""
