"""Gives each user a separate origin, and protects the hub's host from pages on users' hosts."""
