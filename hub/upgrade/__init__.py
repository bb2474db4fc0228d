"""`make upgrade`: upgrade a hub in containers to another version, and go back if that fails."""
