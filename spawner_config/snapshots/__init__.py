"""The hub's side of users' snapshots: the settings, the service and the scopes with which servers reach it."""
