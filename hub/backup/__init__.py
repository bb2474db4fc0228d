"""Backups: `make backup` and `make restore`, for the hubs of all deployments.

The operator's side (operations.py and sites/) needs only the standard library. It hands a `Job` to a process that has
the hub's volumes (agent.py), which runs restic.
"""
