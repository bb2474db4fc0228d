"""How a hub with containers publishes versions of data sets: a short-lived container copies a folder of a user's home."""
