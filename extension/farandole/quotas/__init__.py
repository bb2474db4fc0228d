"""How much disk space the user's home takes, compared with the limit that the hub sets for it."""
