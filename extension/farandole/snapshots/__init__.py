"""Snapshots of the user's home, which restic takes and restores: `fd.Snapshots`, and what ``%snapshot`` calls."""
