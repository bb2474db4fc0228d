"""Limits on what a single user, or anyone who is not logged in, can make the hub read and store."""
