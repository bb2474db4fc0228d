"""The hub's service for snapshots: a repository of restic for each user, which users can add to but not destroy."""
