"""Versions of data sets: folders that never change, each with a manifest of the SHA-256 digests of its files."""
