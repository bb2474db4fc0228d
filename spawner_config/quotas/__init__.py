"""Limits on the size of users' homes, and what keeps the hub's own files from a disk that users have filled."""
