"""One-time links with which users set their passwords."""
