"""What the panel shows of the user's snapshots: lists, folders and versions of files, and what is being done."""
