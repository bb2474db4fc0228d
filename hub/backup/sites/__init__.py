"""The kinds of hub that can be backed up, and how to reach their volumes."""
