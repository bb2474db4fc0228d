"""Limits on what one user, or anyone before the login, can make the hub read and store."""
